package hookserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trimtab/trimtab/internal/jsonwords"
)

// Policy decides whether an event fails if the call of a server fails.
type Policy string

// The policies. The default is Ignore.
const (
	Ignore Policy = "Ignore" // the agent continues as if the server did not exist
	Fail   Policy = "Fail"   // the event fails
)

// Registration is the content of a server's file. It has the same form as the files of koordinator's runtime proxy 1.8
// (runtimeproxy/config). Like that proxy, the agent ignores unknown keys.
type Registration struct {
	// Endpoint is the path of the server's socket.
	Endpoint string  `json:"remote-endpoint"`
	Policy   Policy  `json:"failure-policy,omitempty"`
	Stages   []Stage `json:"runtime-hooks"`
}

const (
	// maxFileBytes limits a server's file, in bytes.
	maxFileBytes = 64 << 10
	// maxSocketPath is the longest path of a socket (the kernel's sockaddr_un without its NUL).
	maxSocketPath = 107
)

// parseRegistration parses the content of a file. It removes unknown stages from the registration and returns them.
func parseRegistration(data []byte) (r Registration, unknownStages []string, err error) {
	if len(data) == 0 {
		return r, nil, errors.New("the file is empty")
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, nil, fmt.Errorf("the file is not a registration: %w", jsonwords.Error(err))
	}
	r.Endpoint = strings.TrimPrefix(r.Endpoint, "unix://")
	switch {
	case r.Endpoint == "":
		return r, nil, errors.New("remote-endpoint is missing: set it to the path of the server's socket")
	case !filepath.IsAbs(r.Endpoint) || len(r.Endpoint) > maxSocketPath || strings.ContainsRune(r.Endpoint, 0):
		return r, nil, fmt.Errorf("remote-endpoint is %q: set it to the absolute path of a socket, with at most %d bytes", r.Endpoint, maxSocketPath)
	}
	r.Endpoint = filepath.Clean(r.Endpoint)
	switch r.Policy {
	case "":
		r.Policy = Ignore
	case Ignore, Fail:
	default:
		return r, nil, fmt.Errorf("failure-policy is %q: set it to %s or %s", r.Policy, Ignore, Fail)
	}
	for _, s := range r.Stages {
		if !isKnownStage(s) {
			unknownStages = append(unknownStages, string(s))
		}
	}
	r.Stages = slices.DeleteFunc(r.Stages, func(s Stage) bool { return !isKnownStage(s) })
	return r, unknownStages, nil
}
