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

// Policy says what a failed call does to the event that waits for it.
type Policy string

// The policies. The default is Ignore.
const (
	Ignore Policy = "Ignore" // as if the server did not exist
	Fail   Policy = "Fail"   // the event fails
)

// Registration is the content of a server's file. Its form is that of the existing proxies (koordinator 1.8,
// runtimeproxy/config). Like them, the agent ignores unknown keys.
type Registration struct {
	// Endpoint is the path of the server's socket.
	Endpoint string  `json:"remote-endpoint"`
	Policy   Policy  `json:"failure-policy,omitempty"`
	Stages   []Stage `json:"runtime-hooks"`
}

const (
	// maxFile limits a server's file, in bytes.
	maxFile = 64 << 10
	// maxSocket is the longest path in the kernel's sockaddr_un, without its NUL.
	maxSocket = 107
)

// parse reads a file's content. odd names the unknown stages, which have no effect.
func parse(data []byte) (r Registration, odd []string, err error) {
	if len(data) == 0 {
		return r, nil, errors.New("the file is empty")
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, nil, fmt.Errorf("it is not a registration: %w", jsonwords.Error(err))
	}
	r.Endpoint = strings.TrimPrefix(r.Endpoint, "unix://")
	switch {
	case r.Endpoint == "":
		return r, nil, errors.New("remote-endpoint is missing: set it to the path of the server's socket")
	case !filepath.IsAbs(r.Endpoint) || len(r.Endpoint) > maxSocket || strings.ContainsRune(r.Endpoint, 0):
		return r, nil, fmt.Errorf("remote-endpoint %q: set it to the absolute path of a socket, at most %d bytes", r.Endpoint, maxSocket)
	}
	r.Endpoint = filepath.Clean(r.Endpoint)
	switch r.Policy {
	case "":
		r.Policy = Ignore
	case Ignore, Fail:
	default:
		return r, nil, fmt.Errorf("failure-policy %q: want %s or %s", r.Policy, Ignore, Fail)
	}
	for _, s := range r.Stages {
		if !known(s) {
			odd = append(odd, string(s))
		}
	}
	r.Stages = slices.DeleteFunc(r.Stages, func(s Stage) bool { return !known(s) })
	return r, odd, nil
}
