package config

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

func TestDocs(t *testing.T) {
	const path = "../../docs/configuration.md"
	if *update {
		if err := os.WriteFile(path, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Markdown() {
		t.Errorf("%s is not what the definitions say; run: go test ./internal/config -update", path)
	}
}
