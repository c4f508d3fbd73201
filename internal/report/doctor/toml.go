package doctor

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/pelletier/go-toml/v2/unstable"
)

// setting is one key of a TOML file.
type setting struct {
	table  []string // path of the table, including the first parts of a dotted key
	key    string
	value  string   // a value that is not an array; a string without its quotes
	raw    string   // the value as it is written in the file
	values []string // the strings of an array
	file   string
	line   int
}

// maxKeyParts is the largest number of parts in the full name of a key: the parts of the table's name and the parts of
// the key itself. parseTOML leaves out keys with more parts. This limits the work for a file of deeply nested tables.
// Configurations of runtimes nest six tables.
const maxKeyParts = 32

// tomlReader collects the settings of a file. It uses the parser's expressions, because decoding into Go types
// would lose the line of each setting.
type tomlReader struct {
	parser unstable.Parser
	file   string
	table  []string  // path of the current table
	offset int       // offset in the file up to which lines are counted
	line   int       // number of the line at offset
	out    []setting // the settings so far
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
			r.table = keyParts(e.Key())
		}
	}
	if err := r.parser.Error(); err != nil {
		return r.out, fmt.Errorf("parse %s: %w", file, err)
	}
	return r.out, nil
}

// add adds a key of a table. If the value of the key is an inline table, it adds the keys of that table.
func (r *tomlReader) add(table []string, e *unstable.Node) {
	at := int(e.Raw.Offset)
	r.line += bytes.Count(r.parser.Data()[r.offset:at], []byte("\n"))
	r.offset = at
	path := keyParts(e.Key())
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
		table: full[:last], key: full[last], value: string(value.Data), raw: string(r.parser.Raw(value.Raw)),
		file: r.file, line: r.line,
	}
	for element := value.Children(); element.Next(); {
		if n := element.Node(); n.Kind == unstable.String {
			s.values = append(s.values, string(n.Data))
		}
	}
	r.out = append(r.out, s)
}

// keyParts returns the parts of a dotted key, at most maxKeyParts+1 of them.
func keyParts(key unstable.Iterator) []string {
	var out []string
	for key.Next() && len(out) <= maxKeyParts {
		out = append(out, string(key.Node().Data))
	}
	return out
}
