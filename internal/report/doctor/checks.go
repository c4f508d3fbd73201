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

// runChecks runs all checks of a node. It runs the checks of the configuration, the agent and the runtime first, because
// the other checks need their results.
func runChecks(ctx context.Context, o Options) []Check {
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
		{byEither, checkAuto(Check{Name: "attachment", Why: "while bypass replaces NRI, the agent sets values only after a container's cgroup appears, and cannot set values that need the creation of the container (environment, mounts, devices)"}, agent)},
		{byBypass, checkBypass(Check{Name: "bypass", Why: "with bypass, the agent sets values only after a container's cgroup appears, and cannot set values that need the creation of the container (environment, mounts, devices)"}, nri)},
		{byBypass | byEither, checkWatches(Check{Name: "inotify", Why: "without enough watches, the agent finds a new container only at the next full scan, up to bypass.resyncSeconds later"}, h)},
		{byNRI | byEither, checkNRI(Check{Name: "nri", Why: "Trimtab attaches through NRI; a runtime with NRI disabled starts every pod without Trimtab"}, nri)},
		{byNRI | byEither, checkNRISocket(Check{Name: "nri socket", Why: "Trimtab connects to this socket; every process that can connect to it can change every container of the node"}, nri)},
		{byNRI | byEither, checkTimeouts(Check{Name: "nri timeouts", Why: "the runtime disconnects a plugin that answers after the timeout, and the pod starts without the plugin's values"}, nri, agent)},
		{byNRI | byEither, checkPlugins(Check{Name: "other nri plugins", Why: "if two plugins set the same value of a container, the creation of the container fails; the order of two plugins with the same index is not defined"}, nri, c.NRI)},
		{byProxy, checkProxy(Check{Name: "cri proxy", Why: "with attach: cri the kubelet reaches the runtime through the agent: without the agent's socket no pod starts; running pods continue"}, h, c.CRI.Socket)},
		{byProxy, checkKubeletEndpoint(Check{Name: "kubelet endpoint", Why: "a kubelet that connects directly to the runtime bypasses the proxy, and its pods get none of the values that they request"}, k, c.CRI.Socket)},
		{byHooks, checkHookService(Check{Name: "hook service", Why: "with attach: hooks a runtime proxy asks the agent about every container; if the agent's socket is missing, or the proxy does not know the socket, pods start without what they request"}, h, c.HookServers.Socket, c.HookServers.Register)},
		{everyMode, asked},
		{everyMode, configured},
		{everyMode, checkKey(Check{Name: "record key", Why: "the key signs the records in containers; a user who can read the key can forge records; without the key, a restarted agent decides again for running containers"}, h, c.Paths.Key, agent != nil)},
		{everyMode, checkState(Check{Name: "state directory", Why: "in this directory the agent saves what the kubelet requested after a container's creation, because a restarted agent needs these requests"}, h, c.Paths.State)},
		{everyMode, checkCgroup(Check{Name: "cgroup", Why: "the agent writes values into the kernel's cgroup files; the cgroup version and the names of the pods' directories determine the paths"}, g)},
		{everyMode, checkCPUManager(Check{Name: "kubelet cpu manager", Why: "only one program may decide which containers own CPUs; two programs undo each other's writes, every 10 seconds"}, k, c, granted)},
		{everyMode, checkMemoryManager(Check{Name: "kubelet memory manager", Why: "the memory manager binds containers to NUMA nodes; if Trimtab chooses their CPUs, these may be on other nodes"}, k, c)},
		{everyMode, checkTopologyManager(Check{Name: "kubelet topology manager", Why: "the topology manager aligns only devices and the resources of the static managers; it may refuse pods"}, k)},
		{everyMode, checkPodSpecs(Check{Name: "pod specs", Why: "runtimes do not report requests, init containers and sidecars; without a source of pod specs, every container counts as an app container, and the agent computes the sums of batch pods from an annotation"}, c.PodSpec.Kubelet, o.podSpecs(ctx, agent, c))},
		{everyMode, checkGrants(Check{Name: "device grants", Why: "devices that Kubernetes granted to a container need no authorization rule; without the kubelet's report, only devices in the runtime's request count as granted"}, granted())},
		{everyMode, checkHookServers(Check{Name: "hook servers", Why: "a hook server decides together with Trimtab about every pod; if its failure-policy is Fail and it does not answer, no pod starts"}, h, c.HookServers.Directory, known.HookServers)},
		{everyMode, checkResourcePlugins(Check{Name: "resource plugins", Why: "a resource plugin allocates what pods request, such as NICs; while the plugin does not answer, pods start without these resources, or do not start (resourcePlugins.failurePolicy)"}, c.ResourcePlugins, known.ResourcePlugins)},
	} {
		if row.with&attach != 0 {
			all = append(all, row.Check)
		}
	}
	return slices.Concat(all, runOptionalChecks(c, agent), checkHooks(g, c))
}

// runOptionalChecks runs the checks of features that the configuration enables.
func runOptionalChecks(c config.Config, agent *api.Node) (all []Check) {
	if len(c.Rules) > 0 {
		all = append(all, checkRules(Check{Name: "rules", Why: "a rule that never matches may have a spelling error, so that the intended pods do not get the values of the rule"}, len(c.Rules), agent))
	}
	if b := c.Placement.Balloons; c.Placement.Policy == "balloons" && len(b.CPUClasses) > 0 {
		all = append(all, checkCPUClasses(Check{Name: "CPU classes", Why: "CPUs without their class run with another frequency, or enter idle states that the class forbids"}, agent))
	}
	if c.Placement.Policy == "topology-aware" && c.Placement.Demotion.Enabled {
		all = append(all, checkDemotion(Check{Name: "demotion", Why: "without demotion, cold memory stays in fast memory, which other containers could use"}, agent))
	}
	if c.NRIHost.Enabled {
		all = append(all, checkNRIHost(Check{Name: "hosted nri plugins", Why: "if two plugins set the same value of a container, the creation of the container fails; a plugin that fails is disconnected, and pods start without its values"}, agent))
	}
	if c.Mode == "observe" || agent != nil && agent.Observed != nil {
		all = append(all, checkMode(Check{Name: "mode", Why: "with mode: observe the agent changes nothing, so no pod gets the values that it requests"}, agent))
	}
	return all
}
