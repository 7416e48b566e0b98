package broker

import (
	"fmt"
	"log/slog"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rewind-kafka/rewind/internal/config"
)

// The broker's loggers are one, called root as Apache Kafka's first one is. Its level can be altered while the broker runs, and is the command line's again after a
// restart, as there.

const rootLogger = "root"

// logLevels are Apache Kafka's names, from the level that says most on.
var logLevels = []struct {
	name  string
	level slog.Level
}{
	{"TRACE", slog.LevelDebug - 4}, {"DEBUG", slog.LevelDebug}, {"INFO", slog.LevelInfo}, {"WARN", slog.LevelWarn}, {"ERROR", slog.LevelError}, {"FATAL", slog.LevelError + 4},
}

// levelName is the level that says no more than l.
func levelName(l slog.Level) string {
	for _, known := range logLevels {
		if l <= known.level {
			return known.name
		}
	}
	return "FATAL"
}

func levelNamed(name string) (slog.Level, bool) {
	for _, known := range logLevels {
		if known.name == name {
			return known.level, true
		}
	}
	return 0, false
}

// loggersOf finds the loggers of a broker that a request names. Where whoever made the broker gave it no level to change, it has none.
func (b *Broker) loggersOf(name string) error {
	switch id, err := strconv.ParseInt(name, 10, 32); {
	case err != nil || int32(id) != b.nodeID:
		return &configError{errInvalidRequest, fmt.Sprintf("unexpected broker id, expected %d, but received %s", b.nodeID, name)}
	case b.level == nil:
		return &configError{errInvalidRequest, "this broker's log has no level that could be altered"}
	}
	return nil
}

// alterLoggers changes the level, or only judges it.
func (b *Broker) alterLoggers(asked *kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) error {
	if err := b.loggersOf(asked.ResourceName); err != nil {
		return err
	}
	next := b.level.Level()
	for i := range asked.Configs {
		kv := &asked.Configs[i]
		switch {
		case kv.Op == kmsg.IncrementalAlterConfigOpAppend, kv.Op == kmsg.IncrementalAlterConfigOpSubtract:
			return &configError{errInvalidRequest, fmt.Sprintf("%s is the level of a logger: nothing can be appended to it or subtracted from it", kv.Name)}
		case kv.Name != rootLogger:
			return &configError{errInvalidConfig, fmt.Sprintf("there is no logger %s, only %s", kv.Name, rootLogger)}
		case kv.Op == kmsg.IncrementalAlterConfigOpDelete:
			return &configError{errInvalidRequest, "the level of the logger root cannot be taken away"}
		}
		if kv.Value == nil {
			return &configError{errInvalidRequest, "a null value is not supported for " + kv.Name}
		}
		level, ok := levelNamed(deref(kv.Value))
		if !ok {
			return &configError{errInvalidConfig, fmt.Sprintf("there is no level %q", deref(kv.Value))}
		}
		next = level
	}
	if !validateOnly {
		b.level.Set(next)
	}
	return nil
}

// loggerResource is for describing only.
type loggerResource struct{ b *Broker }

var loggerKey = &config.Key{Name: rootLogger, Doc: "The level from which on the broker logs: TRACE, DEBUG, INFO, WARN, ERROR or FATAL."}

func (r *loggerResource) overrides() map[string]string { return nil }
func (r *loggerResource) describe() []config.Entry {
	return []config.Entry{{Key: loggerKey, Value: levelName(r.b.level.Level()), Source: config.SourceLogger}}
}
func (r *loggerResource) splits() bool { return false }

func (r *loggerResource) key(string) (*config.Key, error) { return nil, config.ErrUnknownKey }

func (r *loggerResource) replace(map[string]string, bool) error {
	return &configError{errInvalidRequest, "the levels of loggers are altered one by one (IncrementalAlterConfigs)"}
}
