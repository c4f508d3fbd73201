package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the largest configuration file read, in bytes.
const MaxSize = 1 << 20

// Load reads and checks a configuration file, and adds the defaults. If the file cannot
// be read, it returns the error of the file system. If the content is invalid, it
// returns an *Error.
func Load(file string) (Config, error) {
	data, err := Read(file)
	if err != nil {
		return Config{}, err
	}
	return Parse(file, data)
}

// Read reads a configuration file without a check of its content. If the file is too large, it returns only the
// beginning.
func Read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return data, nil
}

// Parse checks a configuration and adds the defaults. name is the name of the file in messages. The error is one
// *Error with all problems.
func Parse(name string, data []byte) (Config, error) {
	c, _, err := Merge(Layer{Name: name, Data: data})
	return c, err
}

// parseDocument returns the root node of the one document in data.
func parseDocument(name string, data []byte) (*yaml.Node, []Problem) {
	if len(data) > MaxSize {
		return nil, []Problem{{File: name, What: fmt.Sprintf("is larger than %d bytes", MaxSize)}}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, []Problem{{File: name, What: fmt.Sprintf("is empty; start with apiVersion: %s and kind: %s", APIVersion, Kind)}}
	case err != nil:
		return nil, []Problem{syntaxProblem(name, err)}
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		return nil, []Problem{{File: name, Line: more.Line, What: "a second YAML document: a configuration has only one"}}
	case !errors.Is(err, io.EOF):
		return nil, []Problem{syntaxProblem(name, err)}
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, []Problem{{File: name, What: "is not a YAML document"}}
	}
	return doc.Content[0], nil
}

var (
	yamlLinePrefix = regexp.MustCompile(`^line (\d+): `)
	syntaxErrors   = regexp.MustCompile(`^did not find expected (<|node content|'-' indicator|key|',' or)`)
)

// syntaxProblem turns the YAML library's message into a problem with its line.
func syntaxProblem(name string, err error) Problem {
	what, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "yaml: "), "\n")
	p := Problem{File: name}
	if m := yamlLinePrefix.FindStringSubmatch(what); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		what = what[len(m[0]):]
		if syntaxErrors.MatchString(what) {
			p.Line++ // the library counts from 0 only in these messages
		}
	}
	p.What = "not YAML: " + what
	return p
}
