package arrows

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDependenciesHaveReasons: each direct dependency is named in the table of ARCHITECTURE.md.
func TestDependenciesHaveReasons(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	_, table, ok := strings.Cut(read("ARCHITECTURE.md"), "## Direct dependencies")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no table of direct dependencies")
	}
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(read("go.mod"), -1) // indirect ones end in a comment
	if len(direct) < 20 {
		t.Fatalf("go.mod has %d direct dependencies", len(direct))
	}
	version := regexp.MustCompile(`/v\d+$`)
	for _, m := range direct {
		module := version.ReplaceAllString(m[1], "")
		if name, below, ok := splitNested(module); !strings.Contains(table, name) || ok && !strings.Contains(table, below) {
			t.Errorf("%s is not in the table of ARCHITECTURE.md", module)
		}
	}
}

// splitNested takes a module apart that lies in another's repository: the table names the two side by side.
func splitNested(module string) (repository, below string, nested bool) {
	rest, ok := strings.CutPrefix(module, "github.com/")
	if !ok {
		return module, "", false
	}
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) < 3 {
		return rest, "", false
	}
	below = strings.TrimPrefix(parts[2], "sdk/")
	return parts[1], below, true
}
