"""The Python clients, one command per run. Records are lines as record_test.go has them.

client.py LIBRARY produce ADDR JOB...          a job is TOPIC:CODEC:FILE
client.py LIBRARY consume ADDR FILE TOPIC...   all partitions from the start to the end
client.py confluent group ADDR GROUP N FILE TOPIC...   N records as a member of the group, whose offsets are committed
"""
import asyncio
import sys
import time


def encode(b):
    if b is None:
        return "null"
    return "x" + (b.encode() if isinstance(b, str) else bytes(b)).hex()


def decode(s):
    return None if s == "null" else bytes.fromhex(s[1:])


def records(path):
    with open(path) as f:
        for line in f:
            _, partition, _, ts, key, value, headers = line.split()
            pairs = [] if headers == "none" else [h.split("=") for h in headers.split(",")]
            yield int(partition), int(ts), decode(key), decode(value), [(k, decode(v)) for k, v in pairs]


def write(out, topic, partition, offset, ts, key, value, headers):
    text = ",".join(k + "=" + encode(v) for k, v in headers or []) or "none"
    print(topic, partition, offset, ts, encode(key), encode(value), text, file=out)


def check(err):
    if err:
        raise err if isinstance(err, Exception) else RuntimeError(err)


class Confluent:
    def __init__(self, addr):
        self.addr = addr

    def produce(self, topic, codec, path):
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.addr, "compression.codec": codec, "enable.idempotence": True, "batch.size": 2000, "linger.ms": 20})
        failed = []
        done = lambda err, _: failed.append(err) if err else None
        for partition, ts, key, value, headers in records(path):
            producer.produce(topic, value, key, partition, on_delivery=done, timestamp=ts, headers=headers)
            producer.poll(0)
        if producer.flush(60):
            raise RuntimeError("records left after 60 s")
        check(failed and str(failed[0]))

    def consumer(self, **more):
        from confluent_kafka import Consumer

        config = {"bootstrap.servers": self.addr, "group.id": "unused", "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
        return Consumer({**config, **more})

    def consume(self, out, topics):
        from confluent_kafka import KafkaError, TopicPartition, OFFSET_BEGINNING

        consumer = self.consumer(**{"enable.partition.eof": True})
        known = consumer.list_topics(timeout=30).topics
        left = {(t, p) for t in topics for p in known[t].partitions}
        consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in left])
        end = time.monotonic() + 90
        while left:
            if time.monotonic() > end:
                raise RuntimeError(f"not at the end of {left}")
            m = consumer.poll(1)
            if m is None:
                continue
            if m.error() and m.error().code() == KafkaError._PARTITION_EOF:
                left.discard((m.topic(), m.partition()))
                continue
            check(m.error() and str(m.error()))
            write(out, m.topic(), m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers())
        consumer.close()

    def group(self, group, n, out, topics):
        consumer = self.consumer(**{"group.id": group})
        consumer.subscribe(list(topics))
        end = time.monotonic() + 60
        while n:
            if time.monotonic() > end:
                raise RuntimeError(f"{n} records are missing")
            m = consumer.poll(1)
            if m is None:
                continue
            check(m.error() and str(m.error()))
            write(out, m.topic(), m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers())
            n -= 1
            last = m
        consumer.commit(message=last, asynchronous=False)
        consumer.close()


class KafkaPython:
    def __init__(self, addr):
        self.addr = addr

    def produce(self, topic, codec, path):
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=self.addr, compression_type=None if codec == "none" else codec, batch_size=2000, linger_ms=20)
        sent = [producer.send(topic, value, key, [(k, v) for k, v in headers], partition, ts) for partition, ts, key, value, headers in records(path)]
        producer.flush(60)
        for s in sent:
            s.get(1)
        producer.close()

    def consume(self, out, topics):
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=self.addr, auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=100)
        parts = [TopicPartition(t, p) for t in topics for p in consumer.partitions_for_topic(t)]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends = consumer.end_offsets(parts)
        end = time.monotonic() + 90
        while any(consumer.position(tp) < ends[tp] for tp in parts):
            if time.monotonic() > end:
                raise RuntimeError("not at the end")
            for tp, batch in consumer.poll(200).items():
                for r in batch:
                    write(out, r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
        consumer.close()


class Aiokafka:
    def __init__(self, addr):
        self.addr = addr

    def produce(self, topic, codec, path):
        asyncio.run(self.aproduce(topic, codec, path))

    async def aproduce(self, topic, codec, path):
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=self.addr, compression_type=None if codec == "none" else codec, enable_idempotence=True, max_batch_size=2000, linger_ms=20)
        await producer.start()
        try:
            sent = [
                await producer.send(topic, value, key, partition, ts, [(k, v) for k, v in headers])
                for partition, ts, key, value, headers in records(path)]
            for s in sent:
                await s
        finally:
            await producer.stop()

    def consume(self, out, topics):
        asyncio.run(self.aconsume(out, topics))

    async def aconsume(self, out, topics):
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(
            *topics, bootstrap_servers=self.addr, group_id=None, auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=100)
        await consumer.start()
        try:
            parts = [TopicPartition(t, p) for t in topics for p in consumer.partitions_for_topic(t)]
            await consumer.seek_to_beginning(*parts)
            ends = await consumer.end_offsets(parts)
            end = time.monotonic() + 90
            while [tp for tp in parts if await consumer.position(tp) < ends[tp]]:
                if time.monotonic() > end:
                    raise RuntimeError("not at the end")
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    for r in batch:
                        write(out, r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
        finally:
            await consumer.stop()


def main(library, command, addr, *args):
    client = {"confluent": Confluent, "kafka-python": KafkaPython, "aiokafka": Aiokafka}[library](addr)
    if command == "produce":
        for job in args:
            client.produce(*job.split(":"))
    elif command == "consume":
        with open(args[0], "w") as out:
            client.consume(out, args[1:])
    elif command == "group":
        with open(args[2], "w") as out:
            client.group(args[0], int(args[1]), out, args[3:])
    else:
        raise ValueError(command)


main(*sys.argv[1:])
