"""Members of groups with librdkafka, each a consumer with a thread of its own, until they are told to leave or the process is killed. Commands and what the
members say are lines of fields separated by tabs; members.go has both."""
import json
import os
import sys
import threading

from confluent_kafka import Consumer, KafkaException

lock = threading.Lock()


def say(*fields):
    with lock:
        print(*fields, sep="\t", flush=True)


def shown(value):
    return "".join(chr(b) if 32 <= b < 127 else "?" for b in value[:80])


class Member(threading.Thread):
    def __init__(self, name, how):
        super().__init__(daemon=True)
        self.name, self.how, self.leaving = name, how, False

    def config(self):
        how = self.how
        c = {
            "bootstrap.servers": how["addr"], "group.id": how["group"], "client.id": self.name, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "fetch.wait.max.ms": 100, "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.interval.ms": 1000, "group.protocol": how["protocol"], "log_level": 2}
        if how["instance"]:
            c["group.instance.id"] = how["instance"]
        if how["protocol"] == "consumer":
            if how["assignor"]:
                c["group.remote.assignor"] = how["assignor"]
            return c
        return {**c, "session.timeout.ms": 6000, "heartbeat.interval.ms": 300, "partition.assignment.strategy": how["assignor"] or "cooperative-sticky"}

    def run(self):
        try:
            self.work()
            say(self.name, "left")
        except Exception as e:
            say(self.name, "failed", repr(e).replace("\t", " ").replace("\n", "|"))

    def told(self, what):
        return lambda _, parts: say(self.name, what, ",".join(sorted(f"{p.topic}-{p.partition}" for p in parts)))

    def work(self):
        c = Consumer(self.config())
        topics = ["^" + self.how["pattern"]] if self.how["pattern"] else self.how["topics"]
        c.subscribe(topics, on_assign=self.told("assigned"), on_revoke=self.told("revoked"), on_lost=self.told("lost"))
        while not self.leaving:
            m = c.poll(0.1)
            if m is None or m.error():  # an error is tried again: the broker may be down
                continue
            say(self.name, "read", m.topic(), m.partition(), m.offset(), shown(m.value() or b""), 0)
            try:
                c.commit(message=m, asynchronous=False)
                say(self.name, "committed")
            except KafkaException as e:  # somebody else will read it again
                say(self.name, "uncommitted", repr(e))
        c.close()


members = {}
print("ready", flush=True)
for line in sys.stdin:
    command = line.rstrip("\n").split("\t")
    if command[0] == "join":
        members[command[1]] = Member(command[1], json.loads(command[2]))
        members[command[1]].start()
    else:
        members.pop(command[1]).leaving = True
os._exit(0)
