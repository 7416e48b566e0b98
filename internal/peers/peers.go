// Package peers tells tests where `make peers` has put what they talk to: an Apache Kafka, object stores, clients. Only tests and their helpers import it. It
// starts nothing.
package peers

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Dir is where `make peers` installs.
func Dir() string {
	if dir := os.Getenv("REWIND_PEERS"); dir != "" {
		return dir
	}
	return filepath.Join(Root(), ".cache", "peers")
}

// Root is the repository's folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Missing skips the test for want of a peer, and fails it in CI, where every peer must be there.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format+": run make peers", args...)
	}
	t.Skipf(format+": run make peers", args...)
}

// Path is the path of something that `make peers` installs.
func Path(t testing.TB, elem ...string) string {
	t.Helper()
	path := filepath.Join(append([]string{Dir()}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		Missing(t, "%s is not installed", filepath.Join(elem...))
	}
	return path
}

// KafkaDir is where Apache Kafka is installed: dist/VERSION/lib has its jars, dist/rsm-VERSION its plug-in of tiered storage.
func KafkaDir() string {
	if dir := os.Getenv("REWIND_KAFKA_PEER"); dir != "" {
		return dir
	}
	return filepath.Join(Dir(), "kafka")
}

// KafkaJars is the class path of Apache Kafka: broker, tools and clients.
func KafkaJars(t testing.TB) string {
	t.Helper()
	return filepath.Join(filepath.Dir(newest(t, "dist", "*", "lib", "kafka-tools-[0-9]*.jar")), "*")
}

// KafkaStorage is the class path of Apache Kafka's tiered storage on a directory, with our delays before it.
func KafkaStorage(t testing.TB) string {
	t.Helper()
	dir := filepath.Dir(newest(t, "dist", "rsm-*", "classes"))
	return filepath.Join(dir, "*") + ":" + filepath.Join(dir, "classes")
}

// KafkaConnect is the class path of Connect's file connectors, which Apache Kafka's own has to be added to.
func KafkaConnect(t testing.TB) string {
	t.Helper()
	dir := filepath.Dir(newest(t, "dist", "connect-*", "classes"))
	return filepath.Join(dir, "*") + ":" + filepath.Join(dir, "classes")
}

func newest(t testing.TB, elem ...string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(append([]string{KafkaDir()}, elem...)...))
	if err != nil || len(found) == 0 {
		Missing(t, "Apache Kafka is not installed")
	}
	return found[len(found)-1]
}
