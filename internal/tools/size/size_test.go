package main

import (
	"go/token"
	"go/types"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLines(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		want int
	}{
		"empty":            {"", 0},
		"blanks, comments": {"// Package a.\npackage a\n\n/* b\n*/\n// c\n", 1},
		"code and comment": {"package a // b\nvar c = 1 /* d */\n", 2},
		"many lines":       {"package a\nvar b = `c\n\nd`\nvar e = f(\n\t1,\n)\n", 7},
		"two on a line":    {"package a; var b = 1\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := countLines([]byte(tt.text)); got != tt.want {
				t.Errorf("%d lines, want %d", got, tt.want)
			}
		})
	}
}

const example = `package a
type T struct{ U; x, y int }
type U struct{ z, w int; V }
type V interface{ Inherited() }
func (*T) On() {}
func (T) Value() {}
func (*U) Promoted() {}
func first(*T, int) {}
func second(int, *T) {}
func value(T) {}
type Data struct{ a, b int }
func (Data) Sum() {}
func long() {
` + "_ = `" + "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n" + "`\n}\n"

func TestTypes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/a.go", []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/fake.go", []byte("package a\ntype Fake struct{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &measurer{module: "m", fset: token.NewFileSet(), size: &size{}, types: types.Config{}}
	if err := m.measurePackage(goPackage{ImportPath: "m/a", Dir: dir, GoFiles: []string{"a.go", "fake.go"}}); err != nil {
		t.Fatal(err)
	}
	want := []typeSize{
		// On, Value, first, and Promoted and Inherited by U; x, y, z, w and V.
		{name: "a.T", methods: 5, fields: 5},
		{name: "a.U", methods: 2, fields: 3},
		{name: "a.Data", methods: 1, fields: 2, plain: true},
	}
	if d := cmp.Diff(want, m.size.types, cmp.AllowUnexported(typeSize{})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]functionSize{{"a.long", 62}}, m.size.longFunctions, cmp.AllowUnexported(functionSize{})); d != "" {
		t.Error(d)
	}
}

// TestTableIsCurrent: the table in ARCHITECTURE.md is up to date.
func TestTableIsCurrent(t *testing.T) {
	t.Parallel()
	s, err := measure("../../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := withTable(string(text), s.table())
	if err != nil {
		t.Fatal(err)
	}
	if want != string(text) {
		t.Errorf("the table is out of date; run make generate:\n%s", s.table())
	}
	for _, part := range []string{"all core packages\n", "methods and fields of the biggest types", "lines of functions with more than"} {
		if !strings.Contains(s.report(), part) {
			t.Errorf("the report lacks %q", part)
		}
	}
}
