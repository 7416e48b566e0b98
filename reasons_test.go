package rewind

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// Everything that direct reading may end for, and why a location is asked for, has a public name.
func TestReasonsAreNamed(t *testing.T) {
	public := constants(t, "metrics.go")
	for name := range constants(t, "internal/history/hooks.go") {
		if !public[name] {
			t.Errorf("history.%s has no name here", name)
		}
	}
}

// constants lists those of types Reason and LocationCause in a file.
func constants(t *testing.T, file string) map[string]bool {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); ok && (id.Name == "Reason" || id.Name == "LocationCause") {
			names[spec.Names[0].Name] = true
		}
		return true
	})
	if len(names) < 10 {
		t.Fatalf("%s: %v", file, names)
	}
	return names
}
