// Command protogen writes the Go code of protocol files. It does not need protoc: the
// library protocompile reads the files, and go.mod has the generators as tools.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// generators are the tools that write Go code, and the parameter of each.
var generators = []struct{ tool, parameter string }{
	{"protoc-gen-go", "paths=source_relative"},
	{"protoc-gen-go-grpc", "paths=source_relative"},
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: protogen DIRECTORY FILE.proto...")
		os.Exit(2)
	}
	if err := generate(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

// generate writes the Go code of protocol files in dir. It writes the code beside each file. The files must not have
// imports.
func generate(ctx context.Context, dir string, files []string) error {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{dir}},
		SourceInfoMode: protocompile.SourceInfoStandard, // keeps the comments
	}
	read, err := compiler.Compile(ctx, files...)
	if err != nil {
		return fmt.Errorf("read %s: %w", dir, err)
	}
	var described []*descriptorpb.FileDescriptorProto
	for _, f := range read {
		described = append(described, protoutil.ProtoFromFileDescriptor(f))
	}
	for _, g := range generators {
		request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
			FileToGenerate: files, Parameter: proto.String(g.parameter), ProtoFile: described,
		})
		if err != nil {
			return fmt.Errorf("encode the request for %s: %w", g.tool, err)
		}
		if err := run(ctx, g.tool, request, dir); err != nil {
			return fmt.Errorf("run %s: %w", g.tool, err)
		}
	}
	return nil
}

// run runs one generator, and writes the files that it generates below dir.
func run(ctx context.Context, tool string, request []byte, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "tool", tool) //nolint:gosec // a name of the table above
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var answer pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &answer); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	if answer.Error != nil {
		return fmt.Errorf("the generator reports: %s", answer.GetError())
	}
	for _, f := range answer.File {
		if err := os.WriteFile(filepath.Join(dir, f.GetName()), []byte(f.GetContent()), 0o644); err != nil { //nolint:gosec // source code
			return err
		}
	}
	return nil
}
