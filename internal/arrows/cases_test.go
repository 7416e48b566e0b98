package arrows

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCases: each row of docs/cases.md has a test of its number, and each such test a row.
func TestCases(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "docs", "cases.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]bool) // number to: has a test
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllSubmatch(page, -1) {
		rows[string(m[1])] = false
	}
	if len(rows) < 25 {
		t.Fatalf("only %d rows", len(rows))
	}
	test := regexp.MustCompile(`(?m)^func TestCase(\d\d)_`)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != root && d.Name() != ".." {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range test.FindAllSubmatch(text, -1) {
			number := string(bytes.TrimLeft(m[1], "0"))
			if _, ok := rows[number]; !ok {
				t.Errorf("%s: TestCase%s_ has no row in docs/cases.md", path, m[1])
			}
			rows[number] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for number, tested := range rows {
		if !tested {
			t.Errorf("docs/cases.md, %s: no test", number)
		}
	}
}
