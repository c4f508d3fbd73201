package doctor

import (
	"cmp"
	"context"
	"slices"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// attachMode is a set of values of the configuration key attach. A check lists the modes in which it runs.
type attachMode uint8

const (
	byNRI     attachMode = 1 << iota // attach: nri
	byBypass                         // attach: bypass, which writes cgroups without the runtime
	byEither                         // attach: auto, which is NRI, or bypass while NRI does not work
	byProxy                          // attach: cri, a proxy between kubelet and runtime
	byHooks                          // attach: hooks, called by a runtime proxy
	everyMode = byNRI | byBypass | byEither | byProxy | byHooks
)

// attachModeOf returns the mode that a configuration chooses.
func attachModeOf(c config.Config) attachMode {
	switch {
	case c.Attach == "bypass", c.Attach == "auto" && !c.NRI.Enabled:
		return byBypass
	case c.Attach == "auto":
		return byEither
	case c.Attach == "cri":
		return byProxy
	case c.Attach == "hooks":
		return byHooks
	}
	return byNRI
}

// checks runs all checks of a node. It runs the checks of the configuration, the agent and the runtime first, because
// the other checks need their results.
func checks(ctx context.Context, o Options) []Check {
	h := o.host()
	configured, c := checkConfig(Check{Name: "configuration", Why: "an agent does not start with an invalid configuration, and a running agent keeps the previous one"}, h, o.ConfigFile)
	asked, agent := checkAgent(ctx, Check{Name: "agent", Why: "without the agent, running containers keep their values, but new pods start without what they request"}, o, c.Paths)
	attach, endpoint := attachModeOf(c), o.Endpoint
	if endpoint == "" && attach != byNRI {
		endpoint = c.CRI.Endpoint
	}
	k, g := kubelet{h, o.KubeletRoot}, cgroups{h, c.Cgroup}
	found, runtime := checkRuntime(Check{Name: "runtime", Why: "Trimtab works through a container runtime; without one there is nothing to attach to"}, h, endpoint, func() string { return runtimeInUse(agent, k) })
	if endpoint == "" {
		found, runtime = attachedWithoutSocket(found, runtime, agent)
	}
	nri := readNRI(h, runtime, c.NRI.Socket)
	granted := func() *api.SpecSource { return o.deviceGrants(ctx, agent, c.PodSpec) }
	known := cmp.Or(agent, &api.Node{})
	var all []Check
	for _, row := range []struct {
		with attachMode
		Check
	}{
		{everyMode, found},
		{byEither, checkAuto(Check{Name: "attachment", Why: "while bypass replaces NRI, values are set when a container's cgroup appears, and values that only its creation can carry are not set at all"}, agent)},
		{byBypass, checkBypass(Check{Name: "bypass", Why: "with bypass, values are set when a container's cgroup appears, and values that only its creation can carry (environment, mounts, devices) are not set at all"}, nri)},
		{byBypass | byEither, checkWatches(Check{Name: "inotify", Why: "the agent finds cgroups that it cannot watch at the next full scan, up to bypass.resyncSeconds later"}, h)},
		{byNRI | byEither, checkNRI(Check{Name: "nri", Why: "Trimtab attaches through NRI; a runtime with NRI disabled starts every pod without it"}, nri)},
		{byNRI | byEither, checkNRISocket(Check{Name: "nri socket", Why: "Trimtab connects there; every process that can connect there can change every container of the node"}, nri)},
		{byNRI | byEither, checkTimeouts(Check{Name: "nri timeouts", Why: "the runtime drops a plugin that answers later, and the pod starts without it"}, nri, agent)},
		{byNRI | byEither, checkPlugins(Check{Name: "other nri plugins", Why: "if two plugins set the same value of a container, its creation fails; the order of two plugins with the same index is not defined"}, nri, c.NRI)},
		{byProxy, checkProxy(Check{Name: "cri proxy", Why: "with attach: cri the kubelet reaches the runtime through the agent: without the agent's socket no pod starts; running pods continue"}, h, c.CRI.Socket)},
		{byProxy, checkKubeletEndpoint(Check{Name: "kubelet endpoint", Why: "a kubelet that connects to the runtime itself bypasses the proxy, and its pods get none of the values that they request"}, k, c.CRI.Socket)},
		{byHooks, checkHookService(Check{Name: "hook service", Why: "with attach: hooks a runtime proxy asks the agent about every container; without the agent's socket, or if the proxy does not know it, pods start without what they request"}, h, c.HookServers.Socket, c.HookServers.Register)},
		{everyMode, asked},
		{everyMode, configured},
		{everyMode, checkKey(Check{Name: "record key", Why: "the key signs the records in containers; a user who can read it can forge records, and without it a restarted agent decides again for running containers"}, h, c.Paths.Key, agent != nil)},
		{everyMode, checkState(Check{Name: "state directory", Why: "the agent saves what the kubelet requested after a container's creation there, so that restarts keep it"}, h, c.Paths.State)},
		{everyMode, checkCgroup(Check{Name: "cgroup", Why: "the agent writes values into the kernel's cgroup files; their version and the names of pods' directories determine the paths"}, g)},
		{everyMode, checkCPUManager(Check{Name: "kubelet cpu manager", Why: "only one program may decide which containers own CPUs; two programs undo each other's writes, every 10 seconds"}, k, c, granted)},
		{everyMode, checkMemoryManager(Check{Name: "kubelet memory manager", Why: "it binds containers to NUMA nodes; CPUs that are chosen separately may be on other nodes"}, k, c)},
		{everyMode, checkTopologyManager(Check{Name: "kubelet topology manager", Why: "it works only through the static managers; if they are off, it only refuses pods"}, k)},
		{everyMode, checkPodSpecs(Check{Name: "pod specs", Why: "runtimes do not report requests, init containers and sidecars; without a source, a container counts as an app container, and batch pods are summed up by their annotation"}, c.PodSpec.Kubelet, o.podSpecs(ctx, agent, c))},
		{everyMode, checkGrants(Check{Name: "device grants", Why: "devices that Kubernetes granted to a container need no authorization rule; without a source, only devices in the runtime's request count as granted"}, granted())},
		{everyMode, checkHookServers(Check{Name: "hook servers", Why: "a hook server decides together with Trimtab about every pod; if its failure-policy is Fail and it does not answer, no pod starts"}, h, c.HookServers.Directory, known.HookServers)},
		{everyMode, checkResourcePlugins(Check{Name: "resource plugins", Why: "a resource plugin allocates what pods request, such as NICs; while it does not answer, pods start without it, or not at all (resourcePlugins.failurePolicy)"}, c.ResourcePlugins, known.ResourcePlugins)},
	} {
		if row.with&attach != 0 {
			all = append(all, row.Check)
		}
	}
	return slices.Concat(all, optionalChecks(c, agent), checkHooks(g, c))
}

// optionalChecks runs the checks of features that the configuration enables.
func optionalChecks(c config.Config, agent *api.Node) (all []Check) {
	if len(c.Rules) > 0 {
		all = append(all, checkRules(Check{Name: "rules", Why: "a rule that never matches may have a spelling error; its pods do not get what it sets"}, len(c.Rules), agent))
	}
	if b := c.Placement.Balloons; c.Placement.Policy == "balloons" && len(b.CPUClasses) > 0 {
		all = append(all, checkCPUClasses(Check{Name: "CPU classes", Why: "CPUs without their class run with another frequency, or enter idle states that the class forbids"}, agent))
	}
	if c.Placement.Policy == "topology-aware" && c.Placement.Demotion.Enabled {
		all = append(all, checkDemotion(Check{Name: "demotion", Why: "without it cold memory stays in fast memory, which other containers could use"}, agent))
	}
	if c.NRIHost.Enabled {
		all = append(all, checkNRIHost(Check{Name: "hosted nri plugins", Why: "if two plugins set the same value of a container, its creation fails; a plugin that fails is disconnected, and pods start without it"}, agent))
	}
	if c.Mode == "observe" || agent != nil && agent.Observed != nil {
		all = append(all, checkMode(Check{Name: "mode", Why: "with mode: observe the agent changes nothing, so no pod gets the values that it requests"}, agent))
	}
	return all
}
