// Package jsonwords rewrites the error messages of Go's JSON decoders for users. It parses the texts of the errors of
// encoding/json and sigs.k8s.io/json, because the types of many of these errors are internal to the packages.
package jsonwords

import (
	"regexp"
	"strings"
)

// Error returns an error that wraps err. The new error's text is the text of err in one line, with plain words instead
// of the names of Go types. Error returns nil if err is nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	return &rewrittenError{text: Text(err.Error()), cause: err}
}

// rewrittenError is an error with a rewritten text.
type rewrittenError struct {
	text  string
	cause error
}

func (p *rewrittenError) Error() string { return p.text }
func (p *rewrittenError) Unwrap() error { return p.cause }

var (
	// The expression typeMismatch matches texts such as:
	//   - "json: cannot unmarshal string into Go struct field Pod.spec.containers of type []v1.Container"
	//   - "json: cannot unmarshal number 1.5 into Go value of type int"
	typeMismatch = regexp.MustCompile(`cannot unmarshal (\w+)( [^ ]+)? into Go (?:struct field (\S+)|value) of type (\S*struct \{.*\}|\S+)`)
	// The expression unexpectedStart matches texts such as "invalid character 'r' looking for beginning of value".
	unexpectedStart = regexp.MustCompile(`invalid character ('.*?'|'\\'') looking for beginning of (value|object key string)`)
	// The expression unexpectedCharacter matches texts such as "invalid character 'r' after object key".
	unexpectedCharacter = regexp.MustCompile(`invalid character ('.*?'|'\\'') (after|in) `)
	// The expression strconvError matches texts such as `strconv.ParseInt: parsing "x": invalid syntax`.
	strconvError = regexp.MustCompile(`strconv\.\w+: parsing (".*?"): (invalid syntax|value out of range)`)
	// The expression unknownField matches the text before the name of a field that the Go type does not have.
	unknownField = regexp.MustCompile(`unknown field "`)
	// The expression decoderPrefix matches prefixes that decoders add, such as "json: ".
	decoderPrefix = regexp.MustCompile(`(^|[:;] |\n)(?:json|error unmarshaling JSON|error converting YAML to JSON|while decoding JSON): `)
)

// Text rewrites the text of a JSON error in one line, with plain words instead of the names of Go types.
func Text(s string) string {
	for range 3 { // errors of nested decoders have up to three prefixes
		s = decoderPrefix.ReplaceAllString(s, "$1")
	}
	s = typeMismatch.ReplaceAllStringFunc(s, func(m string) string {
		f := typeMismatch.FindStringSubmatch(m)
		words := "want " + describeType(f[4]) + ", got " + strings.TrimSpace(describeKind(f[1])+f[2])
		if _, path, found := strings.Cut(f[3], "."); found { // the part before the first dot is a Go type
			return path + ": " + words
		}
		return words
	})
	s = unexpectedStart.ReplaceAllString(s, "not JSON: unexpected $1")
	s = unexpectedCharacter.ReplaceAllString(s, "not JSON: unexpected $1 $2 ")
	s = strconvError.ReplaceAllStringFunc(s, func(m string) string {
		f := strconvError.FindStringSubmatch(m)
		if f[2] == "value out of range" {
			return f[1] + " is too large or too small"
		}
		return f[1] + " is not a number"
	})
	s = unknownField.ReplaceAllString(s, `unknown key "`)
	s = strings.ReplaceAll(s, "unexpected end of JSON input", "the JSON ends too early")
	return strings.ReplaceAll(s, "\n", "; ")
}

// describeType describes a Go type in words. For example, it returns "a list" for the type "[]string".
func describeType(goType string) string {
	goType = strings.TrimLeft(goType, "*")
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case goType == "bool":
		return "true or false"
	case goType == "string":
		return "a text"
	}
	return "a mapping of keys"
}

// describeKind describes a kind of JSON value in words. For example, it returns "a list" for the kind "array".
func describeKind(kind string) string {
	switch kind {
	case "string":
		return "a text"
	case "object":
		return "a mapping"
	case "array":
		return "a list"
	case "bool":
		return "true or false"
	case "number":
		return "a number"
	}
	return kind
}
