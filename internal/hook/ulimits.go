package hook

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// Ulimits gives the processes of containers the limits that their pod requests. The keys and values are those of NRI
// 0.12, plugin ulimit-adjuster.
type Ulimits struct {
	// Maximum has the highest limit that a pod gets, by type, such as RLIMIT_NOFILE. Types without an entry have
	// no maximum.
	Maximum map[string]uint64
}

// UlimitsOptions tunes the hook of process limits.
type UlimitsOptions struct {
	// Enabled switches the hook on.
	Enabled bool `json:"enabled"`
	// Maximum are the highest limits that a pod gets, such as nofile=1048576. If a pod
	// requests a higher limit, it gets the maximum, and the agent reports that. Types
	// without an entry have no maximum.
	Maximum []string `json:"maximum" check:"process limits"`
}

// Make makes the hook for a node.
func (o UlimitsOptions) Make(_ Node, _ *Options) (Hook, error) {
	h := Ulimits{Maximum: map[string]uint64{}}
	for _, text := range o.Maximum {
		name, number, _ := strings.Cut(text, "=")
		kind := intent.RlimitType(name)
		n, err := strconv.ParseUint(number, 10, 64)
		if kind == "" || err != nil {
			return nil, fmt.Errorf("hooks.ulimits.maximum: %q is not the name of a process limit with a number, such as nofile=1048576", text)
		}
		h.Maximum[kind] = n
	}
	return h, nil
}

// Info describes the hook.
func (Ulimits) Info() Info {
	return Info{
		Name:    "ulimits",
		About:   "limits of processes (ulimit), such as open files and locked memory",
		Stages:  []lifecycle.Kind{lifecycle.CreateContainer},
		Reads:   []string{intent.NRIUlimits, intent.NRIOldUlimits},
		Sets:    []lifecycle.Field{lifecycle.ProcessLimit},
		Compose: "no other hook sets this field",
		Differs: []string{
			"KEY/pod and KEY without a suffix apply to all containers of the pod, in addition to KEY/container.NAME",
			"a malformed text is reported, and the container starts with the limits that it would have without this text; the plugin fails the creation",
			"a limit is no higher than hooks.ulimits.maximum",
			"if the requests of the attachment have no field for a limit, the agent sets the limit of the running processes (docs/parity.md)",
			"a running container keeps the limits that it was created with",
		},
	}
}

// Propose sets the process limits of a container.
func (h Ulimits) Propose(in *Input, out *Output) {
	asked, why, ok := scopedRequest(in, in.Intent.Ulimits, "ulimits")
	if !ok {
		return
	}
	for _, r := range asked.V {
		if most, bounded := h.Maximum[r.Type]; bounded && r.Hard > most {
			out.addProblem(lifecycle.Problem{
				Key: asked.Key, Value: r.Type + " " + r.Text(), Refused: true,
				Reason: fmt.Sprintf("ulimits: the hard limit %d is above %d, the maximum in hooks.ulimits.maximum", r.Hard, most), Then: "the container gets the maximum",
			})
			r.Hard, r.Soft = most, min(r.Soft, most)
		}
		out.setText(in, lifecycle.ProcessLimit, r.Type, r.Text(), why)
	}
}
