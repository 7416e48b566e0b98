package arrows

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages are the documents of the repository, by their names from its root.
func pages(t *testing.T, root string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "peers/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all[strings.TrimPrefix(filepath.ToSlash(name), root+"/")] = string(text)
		}
	}
	if len(all) < 20 {
		t.Fatalf("only %d pages", len(all))
	}
	return all
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// anchors are the fragments that lead to a page's headings, as GitHub makes them.
func anchors(page string) map[string]bool {
	all := make(map[string]bool)
	other := regexp.MustCompile(`[^\pL\pN_\- ]`)
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		name := other.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}

// TestLinks: each link within the repository leads to a file, and to a heading of it if it names one.
func TestLinks(t *testing.T) {
	const root = "../.."
	all, links := pages(t, root), 0
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), path))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: (%s) leads nowhere", name, m[1])
			} else if anchor != "" && !anchors(all[target])[anchor] {
				t.Errorf("%s: (%s): %s has no such heading", name, m[1], target)
			}
		}
	}
	if links < 40 {
		t.Errorf("only %d links", links)
	}
}

// TestNamedTests: what a page names as a test is one, or, with a star, the beginning of one's name. A target of the Makefile that it names is there.
func TestNamedTests(t *testing.T) {
	const root = "../.."
	var source strings.Builder
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		source.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(?:make )?(Test[A-Z]\\w+|test-[a-z-]+[a-z])([*_.]*)`")
	for name, page := range pages(t, root) {
		for _, m := range named.FindAllStringSubmatch(page, -1) {
			want, in := "func "+m[1], source.String()
			switch {
			case strings.HasPrefix(m[1], "test-"):
				want, in = "\n"+m[1]+":", string(makefile)
			case m[2] == "" || m[2] == ".":
				want += "("
			}
			if !strings.Contains(in, want) {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	}
}
