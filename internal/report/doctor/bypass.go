package doctor

import (
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
)

// checkBypass reports what the choice of this attachment means.
func checkBypass(c Check, nri *nriConfig) Check {
	if nri.running && nri.there {
		return c.ok("attach is bypass, although %s exists: nri would set all values, before containers exist", nri.socket)
	}
	return c.ok("attach is bypass; NRI is not checked")
}

// checkAuto reports which attachment is in force.
func checkAuto(c Check, agent *api.Node) Check {
	if agent == nil {
		return c.unknown("start the agent", "attach is auto: NRI while its socket works, otherwise bypass; no agent runs that could report which one is active")
	}
	for _, a := range agent.Attachments {
		switch {
		case a.InForce == "":
		case a.Name == "nri":
			return c.ok("nri is %s", a.InForce)
		default:
			return c.problem("see the check of nri", "%s is %s", a.Name, a.InForce)
		}
	}
	return c.problem("see the checks of nri and of the runtime", "neither nri nor bypass is connected")
}

// fewWatches is the number of watches for some thousand pods: one for each pod, and three more while a container
// starts.
const fewWatches = 4096

func checkWatches(c Check, h host) Check {
	const file = "/proc/sys/fs/inotify/max_user_watches"
	data, err := h.read(file)
	if err != nil {
		return c.unseen(file, err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(data)))
	switch {
	case err != nil:
		return c.unknown("check its content", "%s is not a number", file)
	case most < fewWatches:
		return c.problem("sysctl fs.inotify.max_user_watches=65536", "%s is %d, and the agent needs a watch for each pod and each starting container", file, most)
	}
	return c.ok("%d watches are allowed", most)
}
