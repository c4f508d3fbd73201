package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/trimtab/trimtab/internal/ociedit"
)

const (
	// settingsVariable is the environment variable with the path of a settings file that replaces the default one.
	settingsVariable = "TRIMTAB_OCI_SETTINGS"
	// defaultSettingsFile is the default settings file. The file need not exist.
	defaultSettingsFile = "/etc/trimtab/oci.json"

	// The values of settings.OnError.
	onErrorIgnore = "ignore"
	onErrorFail   = "fail"
)

// settings are the wrapper's settings.
type settings struct {
	// Runtime is the real OCI runtime: a path, or a name in PATH. Default: runc.
	Runtime string `json:"runtime"`
	// Decisions is the directory of decisions. It must be the agent's cri.ociWrapper.directory. Default:
	// /run/trimtab/oci.
	Decisions string `json:"decisions"`
	// OnError says what happens if the decision about a container cannot be read or applied. With ignore, the container
	// is created without the decision; with fail, it is not created. Default: ignore.
	OnError string `json:"onError"`
}

// readSettings reads the settings file at a path, or the default file if the path is "". Together with an error it
// returns the default settings.
func readSettings(path string) (settings, error) {
	s, err := parseSettings(cmp.Or(path, defaultSettingsFile), path != "")
	if err != nil {
		s = settings{}
	}
	s.Runtime, s.Decisions, s.OnError = cmp.Or(s.Runtime, "runc"), cmp.Or(s.Decisions, ociedit.DefaultDirectory), cmp.Or(s.OnError, onErrorIgnore)
	return s, err
}

// parseSettings reads a settings file. A missing file is an error only if mustExist is true.
func parseSettings(file string, mustExist bool) (s settings, err error) {
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !mustExist:
		return s, nil
	case err != nil:
		return s, fmt.Errorf("read the settings: %w", err)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&s); err != nil {
		return s, fmt.Errorf("read the settings in %s: %w", file, err)
	}
	if s.OnError != "" && s.OnError != onErrorIgnore && s.OnError != onErrorFail {
		return s, fmt.Errorf("read the settings in %s: onError is %q, want %s or %s", file, s.OnError, onErrorIgnore, onErrorFail)
	}
	return s, nil
}

// jsonQuoted returns a text as a quoted JSON string.
func jsonQuoted(text string) string {
	b, _ := json.Marshal(text) // a string can always be encoded
	return string(b)
}
