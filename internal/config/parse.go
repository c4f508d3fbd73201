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

// MaxSize is the largest size of a configuration file, in bytes.
const MaxSize = 1 << 20

// Load reads and checks a configuration file, and adds the defaults. If the file cannot
// be read, Load returns the error of the file system. If the content is invalid, Load
// returns an *Error.
func Load(file string) (Config, error) {
	data, err := Read(file)
	if err != nil {
		return Config{}, err
	}
	return Parse(file, data)
}

// Read reads a configuration file without a check of its content. If the file has more than MaxSize bytes, Read returns
// the first MaxSize+1 bytes, and Parse then refuses them.
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

// Parse checks a configuration and adds the defaults. The parameter name is the name of the file in messages. The error
// is one *Error with all problems.
func Parse(name string, data []byte) (Config, error) {
	c, _, err := Merge(Layer{Name: name, Data: data})
	return c, err
}

// parseDocument returns the root node of the YAML document in data. It returns a problem if data has not exactly one
// document.
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
		return nil, []Problem{{File: name, Line: more.Line, What: "the file has a second YAML document: a configuration has only one"}}
	case !errors.Is(err, io.EOF):
		return nil, []Problem{syntaxProblem(name, err)}
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, []Problem{{File: name, What: "is not a YAML document"}}
	}
	return doc.Content[0], nil
}

var (
	// yamlLinePrefix matches the line number at the beginning of an error message of the YAML library.
	yamlLinePrefix = regexp.MustCompile(`^line (\d+): `)
	// syntaxErrors matches the messages of the YAML library in which line numbers begin with 0.
	syntaxErrors = regexp.MustCompile(`^did not find expected (<|node content|'-' indicator|key|',' or)`)
)

// syntaxProblem turns an error of the YAML library into a problem with a line.
func syntaxProblem(name string, err error) Problem {
	what, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), "yaml: "), "\n")
	p := Problem{File: name}
	if m := yamlLinePrefix.FindStringSubmatch(what); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		what = what[len(m[0]):]
		if syntaxErrors.MatchString(what) {
			p.Line++ // in these messages the library counts lines from 0, in all others from 1
		}
	}
	p.What = "not YAML: " + what
	return p
}
