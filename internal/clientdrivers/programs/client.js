// A session with KafkaJS, as session.go says: in JSON on standard input, the result in JSON on standard output.
'use strict'
const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const s = JSON.parse(fs.readFileSync(0, 'utf8'))

function config() {
  const c = { clientId: 'session', brokers: s.addr.split(','), logLevel: logLevel.NOTHING, ssl: undefined, sasl: undefined }
  if (s.protocol.endsWith('SSL')) c.ssl = { ca: [fs.readFileSync(s.ca, 'utf8')] }
  if (s.cert) Object.assign(c.ssl, { cert: fs.readFileSync(s.cert, 'utf8'), key: fs.readFileSync(s.key, 'utf8') })
  if (s.mechanism === 'OAUTHBEARER') c.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: s.token }) }
  else if (s.mechanism) c.sasl = { mechanism: s.mechanism.toLowerCase(), username: s.user, password: s.password }
  return c
}

async function produce(kafka) {
  const messages = s.values.map((value, i) => ({ key: 'k' + i, value, partition: 0 }))
  const more = s.transactional ? { transactionalId: s.transactional_id, maxInFlightRequests: 1, idempotent: true } : {}
  const producer = kafka.producer(more)
  await producer.connect()
  if (s.transactional) {
    const aborted = await producer.transaction()
    await aborted.send({ topic: s.produce, messages })
    await aborted.abort()
    const committed = await producer.transaction()
    await committed.send({ topic: s.produce, messages })
    await committed.commit()
  } else {
    await producer.send({ topic: s.produce, messages })
  }
  await producer.disconnect()
}

async function read(kafka, n) {
  const out = []
  const consumer = kafka.consumer({ groupId: s.group, maxWaitTimeInMs: 200, readUncommitted: s.isolation === 'read_uncommitted' })
  await consumer.connect()
  await consumer.subscribe({ topics: [s.read], fromBeginning: true })
  await new Promise((done, fail) => {
    const timer = setTimeout(() => fail(new Error(`${out.length} of ${n} records in time`)), 55000)
    consumer.on(consumer.events.CRASH, e => fail(e.payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        if (out.length >= n) return
        const base64 = b => (b === null ? '' : b.toString('base64'))
        out.push({ offset: Number(message.offset), key: base64(message.key), value: base64(message.value) })
        if (out.length < n) return
        await consumer.commitOffsets([{ topic, partition, offset: (BigInt(message.offset) + 1n).toString() }])
        clearTimeout(timer)
        done()
      },
    }).catch(fail)
  })
  await consumer.disconnect()
  return out
}

async function main() {
  const kafka = new Kafka(config())
  if (s.produce) await produce(kafka)
  const result = {}
  if (s.read) {
    result.first = await read(kafka, s.first)
    result.rest = await read(kafka, s.n - s.first)
  }
  process.stdout.write(JSON.stringify(result))
}

main().catch(e => {
  process.stderr.write(e.stack + '\n')
  process.exit(1)
})
