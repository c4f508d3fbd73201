package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// size has the sizes of the program's packages and types, and its long functions.
type size struct {
	packages      []packageSize
	types         []typeSize
	longFunctions []functionSize
}

// packageSize is a package and its lines of code.
type packageSize struct {
	name  string // the path below the module
	lines int
}

// typeSize is a type that has methods or fields.
type typeSize struct {
	name            string // the name with the package
	methods, fields int
	plain           bool // plain data: no method of the type itself has a pointer receiver
}

// functionSize is a function and the number of its lines.
type functionSize struct {
	name  string
	lines int
}

// goPackage is a package as go list reports it.
type goPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Module                  *struct{ Path string }
}

// measure measures the module in a directory.
func measure(dir string) (*size, error) {
	all, module, err := listPackages(dir)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	exports := map[string]string{}
	for _, p := range all {
		exports[p.ImportPath] = p.Export
	}
	m := &measurer{module: module, fset: fset, size: &size{}}
	m.types = types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	for _, p := range all {
		if p.Module == nil || p.Module.Path != module || !isCounted(strings.TrimPrefix(p.ImportPath, module+"/")) {
			continue
		}
		if err := m.measurePackage(p); err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
	}
	return m.size, nil
}

// listPackages returns the packages that cmd/trimtab consists of, and the name of the module.
func listPackages(dir string) (all []goPackage, module string, err error) {
	cmd := exec.CommandContext(context.Background(), "go", "list", "-deps", "-export", "-tags", "nri_no_wasm,grpcnotrace", "-json=ImportPath,Dir,Export,GoFiles,Module", "./cmd/trimtab")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, "", fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, module, nil
		} else if err != nil {
			return nil, "", err
		}
		if rest, isCommand := strings.CutSuffix(p.ImportPath, "/cmd/trimtab"); isCommand {
			module = rest
		}
		all = append(all, p)
	}
}

// isCounted reports whether a package of this module is counted. All are counted, except those of the simulator.
func isCounted(name string) bool {
	return name != "internal/sim" && !strings.HasPrefix(name, "internal/sim/")
}

// isFake reports whether a file has a fake kernel, which only tests and the simulator use.
func isFake(file string) bool { return file == "fake.go" || strings.HasPrefix(file, "fake_") }

// measurer measures packages one after the other.
type measurer struct {
	module string
	fset   *token.FileSet
	types  types.Config
	size   *size
}

// measurePackage adds the sizes of a package, its types and its long functions to m.size.
func (m *measurer) measurePackage(p goPackage) error {
	var all, counted []*ast.File
	measured := packageSize{name: strings.TrimPrefix(p.ImportPath, m.module+"/")}
	for _, name := range p.GoFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(m.fset, filepath.Join(p.Dir, name), text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, f)
		if isFake(name) || ast.IsGenerated(f) {
			continue
		}
		counted = append(counted, f)
		measured.lines += countLines(text)
	}
	if measured.lines > 0 {
		m.size.packages = append(m.size.packages, measured)
	}
	checked, err := m.types.Check(p.ImportPath, m.fset, all, nil)
	if err != nil {
		return err
	}
	m.measureTypes(measured.name, checked, counted)
	m.measureFunctions(measured.name, counted)
	return nil
}

// countLines counts the lines of Go code in a text that are not blank and not only a comment.
func countLines(text []byte) int {
	var s scanner.Scanner
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(text))
	s.Init(file, text, nil, 0)
	n, last := 0, 0
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return n
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue // the scanner adds these semicolons; they are not in the file
		}
		first := file.Line(pos)
		end := first + strings.Count(lit, "\n")
		n += end - max(first, last+1) + 1
		last = max(last, end)
	}
}

// measureTypes counts the methods and fields of the types that the files declare.
func (m *measurer) measureTypes(packageName string, p *types.Package, files []*ast.File) {
	first := firstParameters(files)
	for _, f := range files {
		for _, d := range f.Decls {
			decl, is := d.(*ast.GenDecl)
			if !is || decl.Tok != token.TYPE {
				continue
			}
			for _, s := range decl.Specs {
				spec, _ := s.(*ast.TypeSpec)
				if named, is := p.Scope().Lookup(spec.Name.Name).Type().(*types.Named); is && !types.IsInterface(named) {
					t := m.sizeOfType(named)
					t.name, t.methods = packageName+"."+spec.Name.Name, t.methods+first[spec.Name.Name]
					m.size.types = append(m.size.types, t)
				}
			}
		}
	}
}

// sizeOfType counts the fields of a type, its methods, and the methods of its embedded fields.
func (m *measurer) sizeOfType(named *types.Named) typeSize {
	t := typeSize{plain: true, methods: types.NewMethodSet(types.NewPointer(named)).Len()}
	for method := range named.Methods() {
		receiver := method.Signature().Recv().Type()
		if _, pointer := receiver.(*types.Pointer); pointer {
			t.plain = false
		}
	}
	if s, is := named.Underlying().(*types.Struct); is {
		t.fields = m.countFields(s)
	}
	return t
}

// countFields counts the fields of a struct. In place of an embedded struct of this module, it counts that struct's fields.
func (m *measurer) countFields(s *types.Struct) int {
	n := 0
	for f := range s.Fields() {
		n++
		if !f.Embedded() {
			continue
		}
		embedded := f.Type()
		if p, is := embedded.(*types.Pointer); is {
			embedded = p.Elem()
		}
		named, is := embedded.(*types.Named)
		if !is || named.Obj().Pkg() == nil || !strings.HasPrefix(named.Obj().Pkg().Path(), m.module+"/") {
			continue
		}
		if inner, is := named.Underlying().(*types.Struct); is {
			n += m.countFields(inner) - 1
		}
	}
	return n
}

// firstParameters counts, for each type of the package, the functions whose first parameter is a pointer to the type.
func firstParameters(files []*ast.File) map[string]int {
	first := map[string]int{}
	for _, f := range files {
		for _, d := range f.Decls {
			decl, is := d.(*ast.FuncDecl)
			if !is || decl.Recv != nil || len(decl.Type.Params.List) == 0 {
				continue
			}
			if star, is := decl.Type.Params.List[0].Type.(*ast.StarExpr); is {
				if name, is := star.X.(*ast.Ident); is {
					first[name.Name]++
				}
			}
		}
	}
	return first
}

// measureFunctions collects the functions that are longer than maxFunctionLines.
func (m *measurer) measureFunctions(packageName string, files []*ast.File) {
	for _, f := range files {
		for _, d := range f.Decls {
			decl, is := d.(*ast.FuncDecl)
			if !is || decl.Body == nil {
				continue
			}
			lines := m.fset.Position(decl.End()).Line - m.fset.Position(decl.Pos()).Line + 1
			if lines > maxFunctionLines {
				m.size.longFunctions = append(m.size.longFunctions, functionSize{packageName + "." + decl.Name.Name, lines})
			}
		}
	}
}
