package script

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Recording has the answers of one kernel.
type Recording struct {
	Kernel  string    `json:"kernel"`  // the kernel's release, as uname -r prints it
	Version string    `json:"version"` // the cgroup version, "v1" or "v2"
	CPUs    string    `json:"cpus"`    // the online CPUs, as a kernel list
	Mems    string    `json:"mems"`    // the NUMA nodes with memory, as a kernel list
	Modules string    `json:"modules"` // "bfq" if the kernel has this I/O scheduler; otherwise ""
	Cases   []Answers `json:"cases"`
}

// Answers has the answers to one case.
type Answers struct {
	Case  string   `json:"case"`
	Steps []Answer `json:"steps"`
}

// Answer is the kernel's answer to one step.
type Answer struct {
	Step      string     `json:"step"`
	Err       string     `json:"err,omitempty"` // the name of the errno; "" if the kernel accepted the step
	FileTexts []FileText `json:"shows,omitempty"`
}

// FileText is the text of a file after a step. If the file could not be read, the text is "!" and the name of the
// errno, such as "!ENOENT".
type FileText struct {
	File string `json:"file"`
	Text string `json:"text"`
}

// Write writes a recording as JSON with one step per line, so that a diff of two recordings is readable.
func (r Recording) Write(w io.Writer) error {
	var b bytes.Buffer
	enc := func(v any) string {
		var one bytes.Buffer
		e := json.NewEncoder(&one)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return err.Error() // strings always encode
		}
		return string(bytes.TrimSpace(one.Bytes()))
	}
	fmt.Fprintf(&b, "{\"kernel\": %s, \"version\": %s, \"cpus\": %s, \"mems\": %s, \"modules\": %s, \"cases\": [", enc(r.Kernel), enc(r.Version), enc(r.CPUs), enc(r.Mems), enc(r.Modules))
	for i, c := range r.Cases {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n {\"case\": %s, \"steps\": [", enc(c.Case))
		for j, s := range c.Steps {
			if j > 0 {
				b.WriteString(",")
			}
			b.WriteString("\n  " + enc(s))
		}
		b.WriteString("\n ]}")
	}
	b.WriteString("\n]}\n")
	_, err := w.Write(b.Bytes())
	return err
}

// ParseRecording reads a recording.
func ParseRecording(data []byte) (Recording, error) {
	var r Recording
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("parse the recording of a kernel: %w", err)
	}
	return r, nil
}
