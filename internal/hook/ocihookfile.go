package hook

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	kjson "sigs.k8s.io/json"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Limits of a file that defines an OCI hook. The number and length of patterns are limited, because the agent matches
// the patterns for every new container.
const (
	maxHookPatterns = 32
	maxHookPattern  = 512     // bytes of one pattern
	maxHookText     = 8 << 10 // bytes of the hook in the OCI spec
)

// hookFile is the JSON content of a file that defines an OCI hook, as in oci-hooks(5) of podman and CRI-O, schema
// 1.0.0.
type hookFile struct {
	Version string `json:"version"`
	Hook    struct {
		Path    string   `json:"path"`
		Args    []string `json:"args"`
		Env     []string `json:"env"`
		Timeout *int64   `json:"timeout"`
	} `json:"hook"`
	// When is the condition for a container. If Always or HasBindMounts is false, no container gets the hook. If
	// HasBindMounts is true, the container must have bind mounts.
	When struct {
		Always        *bool             `json:"always"`
		PatternsByKey map[string]string `json:"annotations"` // each entry has a pattern for keys and a pattern for values
		Commands      []string          `json:"commands"`    // one of these patterns must match the command
		HasBindMounts *bool             `json:"hasBindMounts"`
	} `json:"when"`
	Stages []string `json:"stages"`
}

// ReadHookFile parses a file that defines an OCI hook. It refuses JSON members that the schema does not have. If it
// ignored a condition with a misspelled name, too many containers would get the hook.
func ReadHookFile(f lifecycle.HookFile) (OCIHookFile, error) {
	def := OCIHookFile{Name: f.Name(), Path: f.Path}
	if f.ReadError != "" {
		return def, errors.New(f.ReadError)
	}
	var read hookFile
	strict, err := kjson.UnmarshalStrict([]byte(f.Text), &read)
	if err = errors.Join(append(strict, err)...); err != nil {
		return def, fmt.Errorf("the file is malformed: %w", err)
	}
	if read.Version != "1.0.0" {
		return def, fmt.Errorf("the member \"version\" is %.20q, want 1.0.0", read.Version)
	}
	h := lifecycle.OCIHook{Path: read.Hook.Path, Args: read.Hook.Args, Env: read.Hook.Env}
	if t := read.Hook.Timeout; t != nil {
		if *t <= 0 {
			return def, fmt.Errorf("the timeout is %d, want seconds above 0", *t)
		}
		h.Timeout = *t
	}
	if wrong := h.WhyInvalid(); wrong != "" {
		return def, errors.New(wrong)
	}
	if len(h.Text()) > maxHookText {
		return def, fmt.Errorf("the hook has more than %d bytes", maxHookText)
	}
	def.Hook = h
	if def.Stages, err = validStages(read.Stages); err == nil {
		def.when, err = compileCondition(&read)
	}
	return def, err
}

// validStages returns the stages of a hook, or an error if one of them is invalid or listed twice.
func validStages(names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, errors.New("the hook has no stage")
	}
	for i, name := range names {
		if !slices.Contains(lifecycle.OCIStages(), name) || slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%.40q in the member \"stages\" is not a stage, or is listed twice", name)
		}
	}
	return names, nil
}

// compileCondition compiles the condition in the member "when". An empty condition is an error: podman would give such
// a hook to no container.
func compileCondition(f *hookFile) (c condition, err error) {
	w := &f.When
	if w.Always == nil && w.HasBindMounts == nil && len(w.PatternsByKey)+len(w.Commands) == 0 {
		return c, errors.New("the member \"when\" has no condition")
	}
	if len(w.PatternsByKey)+len(w.Commands) > maxHookPatterns {
		return c, fmt.Errorf("the member \"when\" has more than %d patterns", maxHookPatterns)
	}
	c.bindMounts = w.HasBindMounts != nil && *w.HasBindMounts
	c.never = w.Always != nil && !*w.Always || w.HasBindMounts != nil && !*w.HasBindMounts
	compile := func(text string) *regexp.Regexp {
		if len(text) > maxHookPattern {
			err = fmt.Errorf("a pattern in the member \"when\" has more than %d bytes", maxHookPattern)
			return nil
		}
		r, wrong := regexp.Compile(text)
		if wrong != nil {
			err = fmt.Errorf("the member \"when\": %w", wrong)
		}
		return r
	}
	for _, key := range slices.Sorted(maps.Keys(w.PatternsByKey)) {
		c.annotations = append(c.annotations, pattern{compile(key), compile(w.PatternsByKey[key])})
	}
	for _, text := range w.Commands {
		c.commands = append(c.commands, compile(text))
	}
	return c, err
}
