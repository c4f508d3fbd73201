package lifecycle

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
)

// OCIStages are the moments at which OCI hooks run, in their order. Source: OCI runtime
// spec 1.2, config.md, POSIX-platform hooks.
func OCIStages() []string {
	return []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
}

// HookFile is a file of a directory of OCI hooks, as it was found.
type HookFile struct {
	Path string `json:"path"`
	Text string `json:"text,omitempty"`
	// Wrong is why the file was not read; "" if it was.
	Wrong string `json:"wrong,omitempty"`
}

// Name is the file's name without its directory.
func (f HookFile) Name() string { return path.Base(f.Path) }

// ociHook is a hook in the JSON of the OCI runtime spec.
type ociHook struct {
	Path    string   `json:"path"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"`
	Timeout int64    `json:"timeout,omitempty"`
}

// Text is the hook as a value of InjectedHook has it: the JSON of the OCI runtime spec.
func (h OCIHook) Text() string {
	text, err := json.Marshal(ociHook(h))
	if err != nil { // strings and numbers alone
		return ""
	}
	return string(text)
}

// HookKey is the key of a value of InjectedHook: the stage, and a name that tells it from
// other hooks of the stage.
func HookKey(stage, name string) string { return stage + " " + name }

// ParseOCIHook reads a value of InjectedHook.
func ParseOCIHook(key, text string) (stage string, h OCIHook, ok bool) {
	var read ociHook
	stage, name, _ := strings.Cut(key, " ")
	err := json.Unmarshal([]byte(text), &read)
	return stage, OCIHook(read), err == nil && name != "" && slices.Contains(OCIStages(), stage) && OCIHook(read).Wrong() == ""
}

// Wrong is what an OCI runtime would refuse of a hook; "" for nothing.
func (h OCIHook) Wrong() string {
	switch {
	case !path.IsAbs(h.Path):
		return "the path of the hook is not absolute"
	case h.Timeout < 0:
		return "the timeout is negative"
	case strings.ContainsRune(h.Path+strings.Join(h.Args, "")+strings.Join(h.Env, ""), 0):
		return "a text has a NUL"
	}
	return ""
}

// At are the hooks of a stage.
func (h *OCIHooks) At(stage string) []OCIHook {
	if h == nil {
		return nil
	}
	all := map[string][]OCIHook{
		"prestart": h.Prestart, "createRuntime": h.CreateRuntime, "createContainer": h.CreateContainer,
		"startContainer": h.StartContainer, "poststart": h.Poststart, "poststop": h.Poststop,
	}
	return all[stage]
}
