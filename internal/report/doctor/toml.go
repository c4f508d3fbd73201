package doctor

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/pelletier/go-toml/v2/unstable"
)

// setting is one key of a TOML file.
type setting struct {
	table []string // with the key's own dots
	key   string
	text  string   // text of a value that is not an array; without quotes if it is a string
	raw   string   // the text as the file has it
	texts []string // the strings of an array
	file  string
	line  int
}

// maxKeyParts bounds how many tables may be nested around a key. Without it, a file of nested tables would cost more
// than other files of its size. Runtimes nest six.
const maxKeyParts = 32

// tomlReader collects the settings of a file. It uses the parser's expressions, because decoding into Go types
// would lose the line of each setting.
type tomlReader struct {
	parser unstable.Parser
	file   string
	table  []string
	offset int // the lines up to this offset are counted
	line   int // at offset
	out    []setting
}

// parseTOML reads the settings of a file, up to its first syntax error.
func parseTOML(file, text string) ([]setting, error) {
	r := tomlReader{file: file, line: 1}
	r.parser.Reset([]byte(text))
	for r.parser.NextExpression() {
		e := r.parser.Expression()
		if e.Kind == unstable.KeyValue {
			r.add(r.table, e)
		} else {
			r.table = parts(e.Key())
		}
	}
	if err := r.parser.Error(); err != nil {
		return r.out, fmt.Errorf("parse %s: %w", file, err)
	}
	return r.out, nil
}

// add adds a key in a table, or those of an inline table.
func (r *tomlReader) add(table []string, e *unstable.Node) {
	at := int(e.Raw.Offset)
	r.line += bytes.Count(r.parser.Data()[r.offset:at], []byte("\n"))
	r.offset = at
	path := parts(e.Key())
	if len(table)+len(path) > maxKeyParts {
		return
	}
	full := slices.Concat(table, path)
	value := e.Value()
	if value.Kind == unstable.InlineTable {
		for inner := value.Children(); inner.Next(); {
			r.add(full, inner.Node())
		}
		return
	}
	last := len(full) - 1
	s := setting{
		table: full[:last], key: full[last], text: string(value.Data), raw: string(r.parser.Raw(value.Raw)),
		file: r.file, line: r.line,
	}
	for element := value.Children(); element.Next(); {
		if n := element.Node(); n.Kind == unstable.String {
			s.texts = append(s.texts, string(n.Data))
		}
	}
	r.out = append(r.out, s)
}

// parts returns the parts of a dotted key, and at most one more than mostParts.
func parts(key unstable.Iterator) []string {
	var out []string
	for key.Next() && len(out) <= maxKeyParts {
		out = append(out, string(key.Node().Data))
	}
	return out
}
