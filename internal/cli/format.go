package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Format is the value of the flag -o: the format in which a command prints its answer.
type Format struct {
	chosen  string   // such as "json"
	choices []string // the values that the flag accepts
}

// AddFormat adds the flag -o to a command. The first choice is the default.
func AddFormat(cmd *cobra.Command, choices ...string) *Format {
	f := &Format{chosen: choices[0], choices: choices}
	cmd.Flags().VarP(f, "output", "o", "what to print: "+strings.Join(choices, ", "))
	// RegisterFlagCompletionFunc fails only if the flag does not exist, and the lines above have added the flag.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// String returns the format that the user chose, or the default.
func (f *Format) String() string { return f.chosen }

// Type returns the word "format", which stands for the value in the help of the flag.
func (f *Format) Type() string { return "format" }

// Set chooses a format.
func (f *Format) Set(s string) error {
	if !slices.Contains(f.choices, s) {
		return fmt.Errorf("want %s", strings.Join(f.choices, " or "))
	}
	f.chosen = s
	return nil
}

// Print writes v as JSON or YAML. For every other format it calls forPeople, which must write the answer.
func (f *Format) Print(w io.Writer, v any, forPeople func() error) error {
	var out []byte
	var err error
	switch f.chosen {
	case "json":
		out, err = json.MarshalIndent(v, "", "  ")
		out = append(out, '\n')
	case "yaml":
		out, err = yaml.Marshal(v)
	default:
		return forPeople()
	}
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return Write(w, out)
}

// APIVersion is the version of the documents that commands print.
const APIVersion = "trimtab.io/v1alpha1"

// PrintAs writes the object v as JSON or YAML, and adds the fields apiVersion and kind before the other fields. For
// every other format it calls forPeople, which must write the answer.
func (f *Format) PrintAs(w io.Writer, kind string, v any, forPeople func() error) error {
	if f.chosen != "json" && f.chosen != "yaml" {
		return forPeople()
	}
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	head := fmt.Sprintf(`{"apiVersion":%q,"kind":%q`, APIVersion, kind)
	if string(body) != "{}" {
		head += ","
	}
	text := append([]byte(head), body[1:]...)
	if f.chosen == "yaml" {
		text, err = yaml.JSONToYAML(text)
	} else {
		var indented bytes.Buffer
		err = json.Indent(&indented, text, "", "  ")
		text = append(indented.Bytes(), '\n')
	}
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return Write(w, text)
}

// PrintList writes a list as JSON or YAML: an object with the fields apiVersion, kind and items, where items has the
// list. For every other format it calls forPeople, which must write the answer.
func (f *Format) PrintList(w io.Writer, kind string, list any, forPeople func() error) error {
	return f.PrintAs(w, kind, struct {
		Items any `json:"items"`
	}{list}, forPeople)
}

// Write writes the answer of a command.
func Write(w io.Writer, out []byte) error {
	if _, err := w.Write(out); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
