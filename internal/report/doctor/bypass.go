package doctor

import (
	"strconv"
	"strings"
)

// beside reports whether the agent stays beside the runtime, with no NRI.
func (n *node) beside() bool {
	return n.config.Attach == "bypass" || n.config.Attach == "auto" && !n.config.NRI.Enabled
}

// either reports whether bypass stands in while NRI is away.
func (n *node) either() bool { return n.config.Attach == "auto" && n.config.NRI.Enabled }

// endpoint is the CRI socket to look at: the one asked for, or the one that an
// agent beside the runtime, or before it, is configured to ask.
func (n *node) endpoint() string {
	if n.o.Endpoint == "" && (n.beside() || n.between() || n.either() || n.asked()) {
		return n.config.CRI.Endpoint
	}
	return n.o.Endpoint
}

// checkBypass tells what the choice of the attachment means.
func (n *node) checkBypass() Check {
	c := Check{Name: "bypass", Why: "beside the runtime, values come when a container's cgroup appears, and what only its creation can carry (environment, mounts, devices) does not come at all"}
	if n.running && n.nriSocket {
		return c.ok("attach is bypass, though %s is there: nri would carry everything, before containers exist", n.config.NRI.Socket)
	}
	return c.ok("attach is bypass; NRI is not looked at")
}

// checkAuto tells which attachment is in force.
func (n *node) checkAuto() Check {
	c := Check{Name: "attachment", Why: "while bypass stands in for NRI, values come when a container's cgroup appears, and what only its creation can carry does not come at all"}
	if n.agent == nil {
		return c.unknown("start the agent", "attach is auto: NRI while its socket works, bypass meanwhile; no agent tells which it is now")
	}
	for _, a := range n.agent.Attachments {
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

// fewWatches are watches for some thousand pods: one for each, three more while
// a container starts.
const fewWatches = 4096

func (n *node) checkWatches() Check {
	const file = "/proc/sys/fs/inotify/max_user_watches"
	c := Check{Name: "inotify", Why: "cgroups that cannot be watched are found at the next look at everything, up to bypass.resyncSeconds later"}
	data, err := n.host.read(file)
	if err != nil {
		return c.unseen(file, err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(data)))
	switch {
	case err != nil:
		return c.unknown("see what it holds", "%s is not a number", file)
	case most < fewWatches:
		return c.problem("sysctl fs.inotify.max_user_watches=65536", "%s is %d, and a watch is needed for each pod and each starting container", file, most)
	}
	return c.ok("%d watches are allowed", most)
}
