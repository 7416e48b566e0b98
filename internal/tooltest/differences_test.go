package tooltest

import "regexp"

// difference is what a tool prints otherwise on purpose. One that does not occur fails the step.
type difference struct {
	step  string
	kafka *regexp.Regexp // in what it prints with Apache Kafka
	ours  string         // instead of it
}

func differ(step, kafka, ours string) difference {
	return difference{step, regexp.MustCompile(kafka), ours}
}

// Each is in docs/differences.md: groups and configurations.
func differences() []difference {
	return []difference{
		differ("configs: describe the brokers' default", `message\.max\.bytes=900000 .*\n`, ""),
		// A group that its first member is about to join is written down as an empty one.
		differ("dump-log: groups' offsets", `\{"type":"2","data":\{"group":"[^"]+"\}\} payload: .*"generation":0,.*\n`, ""),
		// There is one broker: nobody asks for a share group's state but itself.
		differ("cluster: versions", `((?:Delete|Initialize|Read|Write)ShareGroupState(?:Summary)?\(8[3-7]\)): 0.*`, "$1: UNSUPPORTED,"),
	}
}
