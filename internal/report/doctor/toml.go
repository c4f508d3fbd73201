package doctor

import (
	"regexp"
	"strings"
)

// setting is one key of a TOML file, as it stands there.
type setting struct {
	table []string // with the key's own dots
	key   string
	value string // raw
	file  string
	line  int
}

// text returns the value without quotes.
func (s setting) text() string { return strings.Trim(s.value, `"'`) }

// parseTOML reads what it can and skips what it cannot: a configuration the
// runtime refuses is not ours to judge. Kept are plain values, arrays as raw
// text, and the pairs of inline tables.
func parseTOML(file, text string) []setting {
	var out []setting
	var table []string
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line, at := uncomment(lines[i]), i+1
		if strings.HasPrefix(line, "[") {
			table = dotted(strings.Trim(line, "[] \t"))
			continue
		}
		name, value, ok := cutOutside(line, '=')
		if !ok {
			continue
		}
		var far reach
		parts := []string{value}
		for far.open(value) && i+1 < len(lines) {
			i++
			value = uncomment(lines[i])
			parts = append(parts, value)
		}
		out = append(out, pairs(table, name, strings.Join(parts, " "), file, at)...)
	}
	return out
}

// mostParts bounds the tables a key is in, so that a file of nothing but tables in
// tables costs no more than another. Runtimes nest six.
const mostParts = 32

// pairs returns the setting of a key, or those of an inline table.
func pairs(table []string, name, value, file string, line int) []setting {
	path := dotted(name)
	if len(path) == 0 {
		return nil
	}
	value = strings.TrimSpace(value)
	if len(table)+len(path) > mostParts {
		return nil
	}
	full := append(append([]string{}, table...), path...)
	inner, isTable := strings.CutPrefix(value, "{")
	if !isTable {
		return []setting{{table: full[:len(full)-1], key: full[len(full)-1], value: value, file: file, line: line}}
	}
	var out []setting
	inner = strings.TrimSuffix(inner, "}")
	for inner != "" {
		var one string
		one, inner, _ = cutOutside(inner, ',')
		if k, v, ok := cutOutside(one, '='); ok {
			out = append(out, pairs(full, k, v, file, line)...)
		}
	}
	return out
}

// cutOutside cuts at the first sep that is in neither quotes nor brackets.
func cutOutside(s string, sep byte) (before, after string, found bool) {
	quote, depth := byte(0), 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' && quote == '"' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == sep && depth == 0:
			return s[:i], s[i+1:], true
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		}
	}
	return s, "", false
}

func uncomment(line string) string {
	before, _, _ := cutOutsideAll(line, '#')
	return strings.TrimSpace(before)
}

// cutOutsideAll heeds quotes but not brackets: a comment may stand in an array.
func cutOutsideAll(s string, sep byte) (before, after string, found bool) {
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' && quote == '"' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == sep:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// reach is how far the lines of a value were read.
type reach struct{ basic, literal, depth int }

// open reports whether a value goes on in the next line after one more of its
// lines. Each line is looked at once.
func (r *reach) open(line string) bool {
	r.basic += strings.Count(line, `"""`)
	r.literal += strings.Count(line, `'''`)
	switch {
	case r.basic > 0:
		return r.basic%2 == 1
	case r.literal > 0:
		return r.literal%2 == 1
	}
	for rest := line; rest != ""; {
		c := rest[0]
		if c == '"' || c == '\'' {
			end := strings.IndexByte(rest[1:], c)
			if end < 0 {
				return false
			}
			rest = rest[end+2:]
			continue
		}
		switch c {
		case '[', '{':
			r.depth++
		case ']', '}':
			r.depth--
		}
		rest = rest[1:]
	}
	return r.depth > 0
}

// dotted splits a key at its dots outside of quotes.
func dotted(s string) []string {
	var out []string
	for s = strings.TrimSpace(s); s != "" && len(out) <= mostParts; {
		var part string
		part, s, _ = cutOutside(s, '.')
		out = append(out, strings.Trim(strings.TrimSpace(part), `"'`))
	}
	return out
}

var quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)

// texts returns the strings of an array.
func (s setting) texts() []string {
	var out []string
	for _, q := range quoted.FindAllString(s.value, -1) {
		out = append(out, strings.Trim(q, `"'`))
	}
	return out
}
