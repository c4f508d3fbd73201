package lifecycle

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
)

// OCIStages returns the stages at which OCI hooks run, in order (OCI runtime spec 1.2, config.md, POSIX-platform
// hooks).
func OCIStages() []string {
	return []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
}

// HookFile is a file in a directory of OCI hooks.
type HookFile struct {
	Path string `json:"path"`
	Text string `json:"text,omitempty"`
	// ReadError is the reason why the file could not be read; "" if it was read.
	ReadError string `json:"wrong,omitempty"`
}

// Name returns the file's name without its directory.
func (f HookFile) Name() string { return path.Base(f.Path) }

// ociHook is a hook in the JSON of the OCI runtime spec.
type ociHook struct {
	Path    string   `json:"path"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"`
	Timeout int64    `json:"timeout,omitempty"`
}

// Text returns the hook as the text of an InjectedHook value: the JSON of a hook in the OCI runtime spec.
func (h OCIHook) Text() string {
	text, err := json.Marshal(ociHook(h))
	if err != nil { // cannot happen: the hook has only strings and numbers
		return ""
	}
	return string(text)
}

// HookKey returns the key of an InjectedHook value: the stage, and a name that is unique in the stage.
func HookKey(stage, name string) string { return stage + " " + name }

// ParseOCIHook parses the key and text of an InjectedHook value.
func ParseOCIHook(key, text string) (stage string, h OCIHook, ok bool) {
	var read ociHook
	stage, name, _ := strings.Cut(key, " ")
	err := json.Unmarshal([]byte(text), &read)
	return stage, OCIHook(read), err == nil && name != "" && slices.Contains(OCIStages(), stage) && OCIHook(read).WhyInvalid() == ""
}

// WhyInvalid returns the reason why an OCI runtime would refuse the hook; "" if the hook is valid.
func (h OCIHook) WhyInvalid() string {
	switch {
	case !path.IsAbs(h.Path):
		return "the path of the hook is not absolute"
	case h.Timeout < 0:
		return "the timeout of the hook is negative"
	case strings.ContainsRune(h.Path+strings.Join(h.Args, "")+strings.Join(h.Env, ""), 0):
		return "the path, an argument or an environment variable of the hook contains a NUL byte"
	}
	return ""
}

// OfStage returns the hooks of a stage.
func (h *OCIHooks) OfStage(stage string) []OCIHook {
	if h == nil {
		return nil
	}
	all := map[string][]OCIHook{
		"prestart": h.Prestart, "createRuntime": h.CreateRuntime, "createContainer": h.CreateContainer,
		"startContainer": h.StartContainer, "poststart": h.Poststart, "poststop": h.Poststop,
	}
	return all[stage]
}
