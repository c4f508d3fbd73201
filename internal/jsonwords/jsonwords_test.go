package jsonwords_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/jsonwords"
	"github.com/trimtab/trimtab/test/clock"
)

type document struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
	Ratio float64
	On    bool `json:"on"`
	Inner struct {
		List []string `json:"list"`
	} `json:"inner"`
}

// TestText has the texts that today's decoders write: a new version with other texts fails this test.
func TestText(t *testing.T) {
	for text, want := range map[string]string{
		`"text"`:                   "want a mapping of keys, got a text",
		`[]`:                       "want a mapping of keys, got a list",
		`{"name": 7}`:              "name: want a text, got a number",
		`{"count": "x"}`:           "count: want a whole number, got a text",
		`{"count": 1.5}`:           "count: want a whole number, got a number 1.5",
		`{"Ratio": {}}`:            "Ratio: want a number, got a mapping",
		`{"on": "yes"}`:            "on: want true or false, got a text",
		`{"inner": {"list": "x"}}`: "inner.list: want a list, got a text",
		`root:x`:                   "not JSON: unexpected 'r'",
		`{"name": "x"} y`:          "not JSON: unexpected 'y' after top-level value",
		`{"name": "x"`:             "the JSON ends too early",
	} {
		for decoder, decode := range map[string]func([]byte, any) error{
			"encoding/json": json.Unmarshal, "sigs.k8s.io/json": kjson.UnmarshalCaseSensitivePreserveInts,
		} {
			err := jsonwords.Error(decode([]byte(text), &document{}))
			if err == nil || err.Error() != want {
				t.Errorf("%s of %s: %v, want %s", decoder, text, err, want)
			}
		}
	}
	strict, err := kjson.UnmarshalStrict([]byte(`{"nam": 1}`), &document{})
	if err := jsonwords.Error(errors.Join(append(strict, err)...)); err.Error() != `unknown key "nam"` {
		t.Error(err)
	}
	if err := jsonwords.Error(yaml.Unmarshal([]byte("count: x"), &document{})); err.Error() != "count: want a whole number, got a text" {
		t.Error(err)
	}
	if jsonwords.Error(nil) != nil {
		t.Error("an error of none")
	}
}

// FuzzText: no rewritten text has a Go type or a newline.
func FuzzText(f *testing.F) {
	for _, s := range []string{`{"inner": 7}`, `{"count": 1e99}`, `{"name": "\x"}`, "{\"\n"} {
		f.Add([]byte(s))
	}
	goWords := regexp.MustCompile(`Go (value|struct)|unmarshal|\[\]|jsonwords_test|strconv`)
	f.Fuzz(func(t *testing.T, text []byte) {
		defer clock.Watch(t, len(text))()
		strict, err := kjson.UnmarshalStrict(text, &document{})
		for _, err := range append(strict, err, json.Unmarshal(text, &document{})) {
			if err == nil || goWords.Match(text) {
				continue
			}
			if s := jsonwords.Error(err).Error(); goWords.MatchString(s) || strings.Contains(s, "\n") {
				t.Errorf("%q of %q", s, text)
			}
		}
	})
}
