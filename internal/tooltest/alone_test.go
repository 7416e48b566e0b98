package tooltest

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rewind-kafka/rewind/internal/peers"
)

// alone are the tools that need a JVM of their own: they do their last part when it ends, or read several lines.
var alone = map[string]bool{verifiableProducer: true, consoleProducer: true}

// runAlone runs one tool in a JVM that ends with it.
func (j *jvm) runAlone(class, in string, args ...string) result {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), toolLimit)
	defer cancel()
	args = append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=" + filepath.Join(j.dir, "log4j2.properties"), "-cp", peers.KafkaJars(j.t), class}, args...)
	cmd := exec.CommandContext(ctx, "java", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = j.dir, strings.NewReader(in), &out, &errs
	err := cmd.Run()
	r := result{out: out.String(), errors: errs.String(), hangs: ctx.Err() != nil}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		r.status = exit.ExitCode()
	} else if err != nil && !r.hangs {
		j.t.Fatalf("running %s: %v", class, err)
	}
	return r
}
