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
	// settingsVariable names another file of settings.
	settingsVariable = "TRIMTAB_OCI_SETTINGS"
	// defaultSettingsFile is the default file of settings. It need not exist.
	defaultSettingsFile = "/etc/trimtab/oci.json"

	onErrorIgnore = "ignore"
	onErrorFail   = "fail"
)

// settings are the wrapper's settings.
type settings struct {
	// Runtime is the real OCI runtime: a path, or a name in PATH. Default: runc.
	Runtime string `json:"runtime"`
	// Decisions is the directory of decisions, the same as the agent's cri.ociWrapper.directory. Default:
	// /run/trimtab/oci.
	Decisions string `json:"decisions"`
	// OnError says what happens to a container whose decision cannot be read or applied: ignore creates it without
	// the decision, fail does not create it. Default: ignore.
	OnError string `json:"onError"`
}

// readSettings reads a file of settings. If it returns an error, it also returns the defaults.
func readSettings(named string) (settings, error) {
	s, err := parseSettings(cmp.Or(named, defaultSettingsFile), named != "")
	if err != nil {
		s = settings{}
	}
	s.Runtime, s.Decisions, s.OnError = cmp.Or(s.Runtime, "runc"), cmp.Or(s.Decisions, ociedit.Directory), cmp.Or(s.OnError, onErrorIgnore)
	return s, err
}

func parseSettings(file string, must bool) (s settings, err error) {
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !must:
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

// quoted is a text as JSON.
func quoted(text string) string {
	b, _ := json.Marshal(text) // a string can always be encoded
	return string(b)
}
