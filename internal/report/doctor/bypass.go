package doctor

import (
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/report/api"
)

// checkBypass reports that the agent attaches by bypass, and whether NRI would work as well.
func checkBypass(c Check, nri *nriConfig) Check {
	if nri.running && nri.socketExists {
		return c.ok("attach is bypass, although %s exists: with attach: nri the agent could set all values, and could set them at the creation of containers", nri.socket)
	}
	return c.ok("attach is bypass; NRI is not checked")
}

// checkAuto reports which attachment is in force.
func checkAuto(c Check, agent *api.Node) Check {
	if agent == nil {
		return c.unknown("start the agent", "attach is auto: the agent uses NRI while the NRI socket works, and otherwise bypass; no agent runs that could report which attachment is active")
	}
	for _, a := range agent.Attachments {
		switch {
		case a.WhyActive == "":
		case a.Name == "nri":
			return c.ok("nri is %s", a.WhyActive)
		default:
			return c.problem(`see the result of the check "nri"`, "%s is %s", a.Name, a.WhyActive)
		}
	}
	return c.problem(`see the results of the checks "nri" and "runtime"`, "neither nri nor bypass is connected")
}

// minWatches is the number of inotify watches for a node with some thousand pods: one for each pod, and three more
// while a container starts.
const minWatches = 4096

// checkWatches checks that the kernel allows the agent enough inotify watches.
func checkWatches(c Check, h host) Check {
	const file = "/proc/sys/fs/inotify/max_user_watches"
	data, err := h.read(file)
	if err != nil {
		return c.unreadable(file, err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(data)))
	switch {
	case err != nil:
		return c.unknown("check the content of the file", "%s does not contain a number", file)
	case most < minWatches:
		return c.problem("sysctl fs.inotify.max_user_watches=65536", "%s is %d, which is too low: the agent needs a watch for each pod, and more for each starting container", file, most)
	}
	return c.ok("%d inotify watches are allowed", most)
}
