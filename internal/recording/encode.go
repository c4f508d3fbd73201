package recording

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// Encode encodes a value as JSON in one line. Equal values have equal text. It leaves out fields that are zero or
// empty, and sorts the keys of maps. The name of a field without a tag begins with a small letter. json.Unmarshal
// can decode the text.
func Encode(v any) ([]byte, error) { return encoder{}.encode(v) }

// encoder caches the fields of each struct type that it has encoded. It is not safe for concurrent use.
type encoder map[reflect.Type][]field

// field is a field of a struct that the encoder writes.
type field struct {
	index    int    // of the field in the struct
	name     string // quoted, with a colon
	embedded bool   // the field is an embedded struct, whose fields become members of the same JSON object
}

func (e encoder) encode(v any) ([]byte, error) { return e.appendValue(nil, reflect.ValueOf(v)) }

func (e encoder) appendValue(b []byte, v reflect.Value) ([]byte, error) {
	if !v.IsValid() {
		return append(b, "null"...), nil
	}
	switch t := v.Type(); {
	case v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface:
		if v.IsNil() {
			return append(b, "null"...), nil
		}
		return e.appendValue(b, v.Elem())
	case t.Implements(jsonMarshaler), t.Implements(textMarshaler):
		return appendMarshaled(b, v)
	}
	switch v.Kind() {
	case reflect.Struct:
		return e.appendStruct(b, v)
	case reflect.Map:
		return e.appendMap(b, v)
	case reflect.Slice, reflect.Array:
		return e.appendList(b, v)
	case reflect.String:
		return appendText(b, v.String())
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.AppendUint(b, v.Uint(), 10), nil
	default:
		return nil, fmt.Errorf("encode a recording: type %v is not supported", v.Type())
	}
}

// appendMarshaled encodes a value whose type has its own JSON or text form.
func appendMarshaled(b []byte, v reflect.Value) ([]byte, error) {
	text, err := json.Marshal(v.Interface())
	return append(b, text...), err
}

// appendText encodes a string like encoding/json. It is faster for strings that need no escapes.
func appendText(b []byte, text string) ([]byte, error) {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, err := json.Marshal(text)
			return append(b, escaped...), err
		}
	}
	return append(append(append(b, '"'), text...), '"'), nil
}

// isOmitted reports whether the encoder leaves out a field with this value.
func isOmitted(v reflect.Value) bool {
	return v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

func (e encoder) appendStruct(b []byte, v reflect.Value) (_ []byte, err error) {
	b = append(b, '{')
	if b, err = e.appendFields(b, v, len(b)); err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

// appendFields encodes the fields of a struct as members of a JSON object. The fields of an embedded struct become
// members of the same object. The parameter firstMember is the offset in b of the first member of this object.
func (e encoder) appendFields(b []byte, v reflect.Value, firstMember int) (_ []byte, err error) {
	for _, f := range e.fields(v.Type()) {
		fv := v.Field(f.index)
		if isOmitted(fv) {
			continue
		}
		if f.embedded {
			if b, err = e.appendFields(b, fv, firstMember); err != nil {
				return nil, err
			}
			continue
		}
		if len(b) > firstMember {
			b = append(b, ',')
		}
		if b, err = e.appendValue(append(b, f.name...), fv); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// fields returns the fields of a struct type that the encoder writes.
func (e encoder) fields(t reflect.Type) []field {
	all, known := e[t]
	if !known {
		all = []field{}
		for i := range t.NumField() {
			f := t.Field(i)
			if name, embedded := nameOf(f); f.IsExported() && name != "-" {
				all = append(all, field{i, strconv.Quote(name) + ":", embedded})
			}
		}
		e[t] = all
	}
	return all
}

// nameOf returns the JSON name of a field: the name in its tag, or its Go name with the leading capital letters in
// lower case. The result embedded reports whether the field is an embedded struct without such a tag.
func nameOf(f reflect.StructField) (name string, embedded bool) {
	name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
	if name != "" {
		return name, false
	}
	if f.Anonymous && f.Type.Kind() == reflect.Struct {
		return "", true
	}
	letters := []rune(f.Name)
	for i := range letters {
		last := i+1 == len(letters) || string(letters[i+1:]) == "s" // "CPUs" is one word
		if !unicode.IsUpper(letters[i]) || i > 0 && !last && !unicode.IsUpper(letters[i+1]) {
			break
		}
		letters[i] = unicode.ToLower(letters[i])
	}
	return string(letters), false
}

func (e encoder) appendMap(b []byte, v reflect.Value) (_ []byte, err error) {
	type entry struct {
		key   string
		value reflect.Value
	}
	var all []entry
	for k, of := range v.Seq2() {
		key := fmt.Sprint(k.Interface())
		all = append(all, entry{key, of})
	}
	slices.SortFunc(all, func(a, c entry) int { return strings.Compare(a.key, c.key) })
	b = append(b, '{')
	for i, one := range all {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendText(b, one.key); err != nil {
			return nil, err
		}
		if b, err = e.appendValue(append(b, ':'), one.value); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendList encodes a slice or an array. It leaves out the zeros at the end of an array, because decoding restores
// them.
func (e encoder) appendList(b []byte, v reflect.Value) (_ []byte, err error) {
	n := v.Len()
	for v.Kind() == reflect.Array && n > 0 && v.Index(n-1).IsZero() {
		n--
	}
	b = append(b, '[')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = e.appendValue(b, v.Index(i)); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}
