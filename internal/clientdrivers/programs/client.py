"""The Python clients, one command per run. Records are lines as internal/clienttest has them.

client.py LIBRARY produce ADDR JOB...          a job is TOPIC:CODEC:FILE
client.py LIBRARY consume ADDR FILE TOPIC...   all partitions from the start to the end
client.py confluent group ADDR GROUP N FILE TOPIC...   N records as a member of the group, whose offsets are committed
client.py confluent transact ADDR ID FROM TO N   N records from topic to topic, in transactions with their offsets
client.py LIBRARY session                      what session.go says, in JSON on standard input; the result in JSON on standard output
"""
import asyncio
import base64
import json
import ssl
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


def seen(offset, key, value):
    return {"offset": offset, "key": base64.b64encode(key or b"").decode(), "value": base64.b64encode(value or b"").decode()}


def deadline():
    end = time.monotonic() + 55

    def look(got, n):
        if time.monotonic() > end:
            raise RuntimeError(f"{got} of {n} records in time")

    return look


class Confluent:
    def __init__(self, addr):
        self.addr = addr

    def config(self, s, **more):
        c = {"bootstrap.servers": self.addr, "security.protocol": s["protocol"]}
        if s["protocol"].endswith("SSL"):
            c["ssl.ca.location"] = s["ca"]
        if s["cert"]:
            c.update({"ssl.certificate.location": s["cert"], "ssl.key.location": s["key"]})
        if s["mechanism"]:
            c["sasl.mechanism"] = s["mechanism"]
        if s["mechanism"] == "OAUTHBEARER":
            c["oauth_cb"] = lambda _: (s["token"], time.time() + 3600)
        elif s["mechanism"]:
            c.update({"sasl.username": s["user"], "sasl.password": s["password"]})
        return {**c, **more}

    def session_produce(self, s):
        from confluent_kafka import Producer

        more = {"transactional.id": s["transactional_id"]} if s["transactional"] else {}
        producer = Producer(self.config(s, **more))
        failed = []

        def send():
            for i, v in enumerate(s["values"]):
                producer.produce(s["produce"], v.encode(), f"k{i}".encode(), 0, on_delivery=lambda err, _: failed.append(err) if err else None)
            if producer.flush(50):
                raise RuntimeError("records left")
            check(failed and str(failed[0]))

        if s["transactional"]:
            producer.init_transactions(30)
            producer.begin_transaction()
            send()
            producer.abort_transaction(30)
            producer.begin_transaction()
        send()
        if s["transactional"]:
            producer.commit_transaction(30)

    def session_read(self, s, n):
        from confluent_kafka import Consumer

        more = {"group.protocol": "consumer"} if s["new_groups"] else {}
        consumer = Consumer(self.config(
            s, **more, **{"group.id": s["group"], "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 200, "isolation.level": s["isolation"]}))
        consumer.subscribe([s["read"]])
        out, look = [], deadline()
        while len(out) < n:
            look(len(out), n)
            m = consumer.poll(0.5)
            if m is None:
                continue
            check(m.error() and str(m.error()))
            out.append(seen(m.offset(), m.key(), m.value()))
        self.commit(consumer)
        consumer.close()
        return out

    def commit(self, consumer):
        """where the consumer is in each partition of which it was given records."""
        positions = consumer.position(consumer.assignment())
        consumer.commit(offsets=[tp for tp in positions if tp.offset >= 0], asynchronous=False)

    def transact(self, id, source, target, n):
        """n records go from one topic to another in transactions, offsets included; every third transaction is aborted, and done again."""
        from confluent_kafka import Producer, TopicPartition

        producer = Producer({"bootstrap.servers": self.addr, "transactional.id": id})
        consumer = self.consumer(**{"group.id": id, "isolation.level": "read_committed"})
        consumer.subscribe([source])
        producer.init_transactions(30)
        done, rounds, look = 0, 0, deadline()
        while done < n:
            look(done, n)
            messages = [m for m in consumer.consume(9, 0.5) if not check(m.error() and str(m.error()))]
            if not messages:
                continue
            producer.begin_transaction()
            for m in messages:
                producer.produce(target, m.value(), m.key())
            producer.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30)
            rounds += 1
            if rounds % 3 == 2:
                producer.flush(30)
                producer.abort_transaction(30)
                for tp in consumer.committed(consumer.assignment(), 30):
                    consumer.seek(TopicPartition(tp.topic, tp.partition, max(tp.offset, 0)))
                continue
            producer.commit_transaction(30)
            done += len(messages)
        consumer.close()

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
        self.commit(consumer)
        consumer.close()


class KafkaPython:
    def __init__(self, addr):
        self.addr = addr

    def config(self, s):
        c = {"bootstrap_servers": self.addr.split(","), "security_protocol": s["protocol"]}
        if s["protocol"].endswith("SSL"):
            c["ssl_cafile"] = s["ca"]
        if s["cert"]:
            c.update(ssl_certfile=s["cert"], ssl_keyfile=s["key"])
        if s["mechanism"]:
            c.update(sasl_mechanism=s["mechanism"], sasl_plain_username=s["user"], sasl_plain_password=s["password"])
        return c

    def session_produce(self, s):
        from kafka import KafkaProducer

        producer = KafkaProducer(**self.config(s))
        sent = [producer.send(s["produce"], v.encode(), f"k{i}".encode(), partition=0) for i, v in enumerate(s["values"])]
        producer.flush(50)
        for f in sent:
            f.get(1)
        producer.close()

    def session_read(self, s, n):
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            s["read"], group_id=s["group"], auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=200, max_poll_records=1, isolation_level=s["isolation"],
            **self.config(s))
        out, look = [], deadline()
        while len(out) < n:
            look(len(out), n)
            for batch in consumer.poll(500).values():
                out += [seen(r.offset, r.key, r.value) for r in batch]
        consumer.commit()
        consumer.close()
        return out

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

    def config(self, s):
        c = {"bootstrap_servers": self.addr.split(","), "security_protocol": s["protocol"]}
        if s["protocol"].endswith("SSL"):
            c["ssl_context"] = ssl.create_default_context(cafile=s["ca"])
        if s["cert"]:
            c["ssl_context"].load_cert_chain(s["cert"], s["key"])
        if s["mechanism"]:
            c["sasl_mechanism"] = s["mechanism"]
        if s["mechanism"] == "OAUTHBEARER":
            from aiokafka.abc import AbstractTokenProvider

            class Provider(AbstractTokenProvider):
                async def token(self):
                    return s["token"]

            c["sasl_oauth_token_provider"] = Provider()
        elif s["mechanism"]:
            c.update(sasl_plain_username=s["user"], sasl_plain_password=s["password"])
        return c

    def session_produce(self, s):
        asyncio.run(self.asession_produce(s))

    async def asession_produce(self, s):
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(transactional_id=s["transactional_id"] if s["transactional"] else None, **self.config(s))
        await producer.start()

        async def send():
            sent = [await producer.send(s["produce"], v.encode(), f"k{i}".encode(), 0) for i, v in enumerate(s["values"])]
            for f in sent:
                await f

        try:
            if s["transactional"]:
                await producer.begin_transaction()
                await send()
                await producer.abort_transaction()
                await producer.begin_transaction()
            await send()
            if s["transactional"]:
                await producer.commit_transaction()
        finally:
            await producer.stop()

    def session_read(self, s, n):
        return asyncio.run(self.asession_read(s, n))

    async def asession_read(self, s, n):
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            s["read"], group_id=s["group"], auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=200, isolation_level=s["isolation"], **self.config(s))
        await consumer.start()
        out, look = [], deadline()
        try:
            while len(out) < n:
                look(len(out), n)
                for batch in (await consumer.getmany(timeout_ms=500, max_records=n - len(out))).values():
                    out += [seen(r.offset, r.key, r.value) for r in batch]
            await consumer.commit()
        finally:
            await consumer.stop()
        return out

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


LIBRARIES = {"confluent": Confluent, "kafka-python": KafkaPython, "aiokafka": Aiokafka}


def session(library):
    s = json.load(sys.stdin)
    client = LIBRARIES[library](s["addr"])
    if s["produce"]:
        client.session_produce(s)
    result = {}
    if s["read"]:
        result = {"first": client.session_read(s, s["first"]), "rest": client.session_read(s, s["n"] - s["first"])}
    json.dump(result, sys.stdout)


def main(library, command, addr=None, *args):
    if command == "session":
        return session(library)
    client = LIBRARIES[library](addr)
    if command == "produce":
        for job in args:
            client.produce(*job.split(":"))
    elif command == "consume":
        with open(args[0], "w") as out:
            client.consume(out, args[1:])
    elif command == "group":
        with open(args[2], "w") as out:
            client.group(args[0], int(args[1]), out, args[3:])
    elif command == "transact":
        client.transact(args[0], args[1], args[2], int(args[3]))
    else:
        raise ValueError(command)


main(*sys.argv[1:])
