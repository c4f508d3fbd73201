package hookserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// Rule describes what the agent does with a field of a server's answer: how the value in the answer changes the value
// in the request. The docs print all rules, and a test checks that the code follows them.
type Rule struct{ Field, Rule string }

// Rules returns the rules for all fields. They are the rules of Koordinator's runtime proxy 1.8, unless a rule
// describes a difference. The texts of the rules call this proxy "the existing proxy".
func Rules() []Rule {
	return []Rule{
		{"pod labels, annotations", "added to the labels and annotations of the pod; entries with the same key are replaced"},
		{"pod cgroup_parent", "a parent other than the pod's is refused and reported, because the kubelet owns its pods' cgroups (the existing proxy moves the pod)"},
		{"pod resources", "not used, as in the existing proxy"},
		{"container_annotations", "added to the annotations of the container; entries with the same key are replaced"},
		{"container_resources", "if absent, nothing changes"},
		{"cpu_period, cpu_shares, memory_limit_in_bytes", "applied if above 0"},
		{"memory_swap_limit_in_bytes", "a value other than the request is refused and reported, because Trimtab does not set swap"},
		{"cpu_quota", "applied if not 0; -1 removes the limit"},
		{"oom_score_adj", "applied if within -1000 to 1000. 0 is applied too: a server that wants no change must answer with the value of the request"},
		{"cpuset_cpus, cpuset_mems", "applied if not empty; an empty list leaves the request unchanged (the existing proxy empties the cpuset)"},
		{"unified", "added to the request. These files are refused and reported: cpu.max, cpu.weight and memory.max, which the fields above set, and all files cpuset.* and cgroup.*"},
		{"hugepage_limits", "not used: the request does not change"},
		{"container_envs", "if not empty, they replace all variables of the container, and other variables are removed; if empty, nothing changes"},
		{"container pod_cgroup_parent", "a parent other than the pod's is refused and reported (the existing proxy moves the container)"},
	}
}

// settingID identifies a setting: a field, and also the key of the entry if the field is a map.
type settingID struct {
	field lifecycle.Field
	key   string
}

// answerProblem returns a problem: the agent does not use a value of a server's answer. The parameter then says what
// the agent does instead.
func answerProblem(server, field, value, reason, then string) lifecycle.Problem {
	return lifecycle.Problem{
		Hook: lifecycle.HookServerName, Key: server + ": " + field, Value: shorten(value), Reason: reason, Then: then,
	}
}

// maxShown limits an untrusted text in a message, in bytes.
const maxShown = 300

// shorten cuts an untrusted text to maxShown bytes, and replaces control characters.
func shorten(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > maxShown {
		s = strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// reservedKeyPrefix is the prefix of label and annotation keys that no answer may set. Only the agent may write its
// records under such keys.
const reservedKeyPrefix = "trimtab.io/record"

// mergeMap returns a map with the entries of request and answer. If both have a key, the answer's value counts.
// mergeMap leaves out invalid entries of the answer, and calls complain for each of them.
func mergeMap(request, answer map[string]string, complain func(key, why string)) map[string]string {
	changed := changedEntries(request, answer)
	if len(changed) == 0 {
		return request
	}
	out := maps.Clone(request)
	for _, k := range slices.Sorted(maps.Keys(changed)) {
		switch {
		case k == "":
			complain(k, "has an empty key")
		case strings.HasPrefix(k, reservedKeyPrefix):
			complain(k, "is reserved for the agent")
		case strings.ContainsRune(k, 0) || strings.ContainsRune(answer[k], 0):
			complain(k, "contains a NUL byte")
		default:
			if out == nil {
				out = map[string]string{}
			}
			out[k] = answer[k]
		}
	}
	return out
}

const entryIgnored = "the agent ignores this entry"

// mergePod returns the request for a pod with the changes of a server's answer. It does not modify request; the result
// shares the unchanged fields with it.
func mergePod(server string, request *hooks.PodSandboxHookRequest, answer *hooks.PodSandboxHookResponse) (*hooks.PodSandboxHookRequest, []lifecycle.Problem) {
	out := &hooks.PodSandboxHookRequest{
		PodMeta: request.PodMeta, RuntimeHandler: request.RuntimeHandler, CgroupParent: request.CgroupParent,
		Overhead: request.Overhead, Resources: request.Resources,
	}
	m := answerMerge{server: server}
	out.Labels = mergeMap(request.Labels, answer.GetLabels(), m.entryProblemFunc("labels"))
	out.Annotations = mergeMap(request.Annotations, answer.GetAnnotations(), m.entryProblemFunc("annotations"))
	if parent := answer.GetCgroupParent(); parent != "" && parent != request.CgroupParent {
		m.addProblem("cgroup_parent", parent, "Trimtab does not move pods out of the kubelet's cgroups", "the pod stays in "+shorten(request.CgroupParent))
	}
	return out, m.problems.List()
}

// mergeContainer returns the request for a container with the changes of a server's answer. It does not modify request;
// the result shares the unchanged fields with it.
func mergeContainer(server string, request *hooks.ContainerResourceHookRequest, answer *hooks.ContainerResourceHookResponse) (*hooks.ContainerResourceHookRequest, []lifecycle.Problem) {
	out := &hooks.ContainerResourceHookRequest{
		PodMeta: request.PodMeta, ContainerMeta: request.ContainerMeta, ContainerResources: request.ContainerResources, PodResources: request.PodResources,
		PodAnnotations: request.PodAnnotations, PodLabels: request.PodLabels, PodCgroupParent: request.PodCgroupParent, ContainerEnvs: request.ContainerEnvs,
	}
	m := answerMerge{server: server}
	out.ContainerAnnotations = mergeMap(request.ContainerAnnotations, answer.GetContainerAnnotations(), m.entryProblemFunc("container_annotations"))
	if parent := answer.GetPodCgroupParent(); parent != "" && parent != request.PodCgroupParent {
		m.addProblem("pod_cgroup_parent", parent, "Trimtab does not move containers out of their pod's cgroup", "the container stays in "+shorten(request.PodCgroupParent))
	}
	if envs := answer.GetContainerEnvs(); len(envs) > 0 {
		m.mergeEnvs(out, envs)
	}
	if r := answer.GetContainerResources(); r != nil {
		out.ContainerResources = proto.CloneOf(request.ContainerResources)
		if out.ContainerResources == nil {
			out.ContainerResources = &hooks.LinuxContainerResources{}
		}
		m.mergeResources(out.ContainerResources, r)
	}
	return out, m.problems.List()
}

// answerMerge merges one answer into a request, and collects the problems of the answer.
type answerMerge struct {
	server   string
	problems lifecycle.ProblemList
}

// addProblem adds a problem: the agent does not use a value of the answer. If the list of problems is full, addProblem
// drops the value's text.
func (m *answerMerge) addProblem(field, value, reason, then string) {
	if m.problems.Full(lifecycle.Problem{}) {
		value = ""
	}
	m.problems.Add(answerProblem(m.server, field, value, reason, then))
}

// entryProblemFunc returns a function that adds a problem about one entry of a field that is a map.
func (m *answerMerge) entryProblemFunc(field string) func(key, why string) {
	return func(key, why string) { m.addProblem(field, key, why, entryIgnored) }
}

// mergeEnvs replaces the variables of the container with the valid variables in envs.
func (m *answerMerge) mergeEnvs(out *hooks.ContainerResourceHookRequest, envs map[string]string) {
	var bad []string
	for name, v := range envs {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			bad = append(bad, name)
		}
	}
	slices.Sort(bad)
	for _, name := range bad {
		m.addProblem("container_envs", name, "is not a valid name or value of a variable", entryIgnored)
		delete(envs, name) // envs is a map of the answer, and nothing reads the answer again
	}
	if len(envs) > 0 {
		out.ContainerEnvs = envs
	}
}

// requestUnchanged describes what the agent does after an invalid value in an answer.
const requestUnchanged = "the value of the request does not change"

// The kernel's limits of CPU periods and quotas in µs (sched/core.c, tg_set_cfs_bandwidth), and of CPU shares.
// maxOOMScoreAdj is the greatest oom_score_adj; the least is -maxOOMScoreAdj.
const (
	minPeriod, maxPeriod = 1000, 1000000
	minQuota             = 1000
	minShares, maxShares = 2, 262144
	maxOOMScoreAdj       = 1000
)

// mergeResources applies the valid values of r, the resources in an answer, to the request's resources in out.
func (m *answerMerge) mergeResources(out, r *hooks.LinuxContainerResources) {
	m.mergeNumber("cpu_period", &out.CpuPeriod, r.CpuPeriod, minPeriod, maxPeriod)
	m.mergeNumber("cpu_shares", &out.CpuShares, r.CpuShares, minShares, maxShares)
	m.mergeNumber("memory_limit_in_bytes", &out.MemoryLimitInBytes, r.MemoryLimitInBytes, 1, 1<<62)
	if s := r.MemorySwapLimitInBytes; s > 0 && s != out.MemorySwapLimitInBytes {
		m.addProblem("memory_swap_limit_in_bytes", fmt.Sprint(s), "Trimtab does not set swap", requestUnchanged)
	}
	switch q := r.CpuQuota; {
	case q == 0:
	case q == -1 || q >= minQuota:
		out.CpuQuota = q
	case q != out.CpuQuota:
		m.addProblem("cpu_quota", fmt.Sprint(q), fmt.Sprintf("is below the kernel's minimum of %d µs; set a higher value, or -1 for no limit", minQuota), requestUnchanged)
	}
	switch o := r.OomScoreAdj; {
	case o >= -maxOOMScoreAdj && o <= maxOOMScoreAdj:
		out.OomScoreAdj = o
	case o != out.OomScoreAdj:
		m.addProblem("oom_score_adj", fmt.Sprint(o), "is not within -1000 to 1000", requestUnchanged)
	}
	m.mergeList("cpuset_cpus", &out.CpusetCpus, r.CpusetCpus)
	m.mergeList("cpuset_mems", &out.CpusetMems, r.CpusetMems)
	for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
		m.mergeUnified(out, file, r.Unified[file])
	}
}

// mergeNumber sets *out, the number in the request, to v, the number in the answer. If v is 0 or negative, the answer
// has no number, and *out does not change. If v is less than least or greater than most, mergeNumber does not change
// *out. It then adds a problem, unless v is equal to *out.
func (m *answerMerge) mergeNumber(field string, out *int64, v, least, most int64) {
	switch {
	case v <= 0 || v == *out:
	case v < least || v > most:
		m.addProblem(field, fmt.Sprint(v), fmt.Sprintf("is not within %d to %d", least, most), requestUnchanged)
	default:
		*out = v
	}
}

// mergeList sets *out, the request's list of CPUs or memory nodes, to the list in the answer. An empty list in the
// answer changes nothing.
func (m *answerMerge) mergeList(field string, out *string, text string) {
	if text == "" || text == *out {
		return
	}
	ids, err := topology.ParseList(text)
	switch {
	case err != nil:
		m.addProblem(field, text, err.Error(), requestUnchanged)
	case len(ids) == 0:
	default:
		if had, err := topology.ParseList(*out); err != nil || !slices.Equal(had, ids) {
			*out = topology.FormatList(ids)
		}
	}
}

// filesWithField are the cgroup v2 files for which the answer has a field of its own, such as cpu_quota for cpu.max. A
// server must set that field. It must not name such a file in the field "unified", which has cgroup v2 files by name.
var filesWithField = []string{"cpu.max", "cpu.weight", "memory.max"}

// mergeUnified adds to out one entry of the field "unified" in the answer. The entry has the name of a cgroup v2 file
// and the text for the file. If the entry is not valid, mergeUnified adds a problem instead.
func (m *answerMerge) mergeUnified(out *hooks.LinuxContainerResources, file, text string) {
	switch {
	case out.Unified[file] == text && text != "":
	case file == "" || strings.Trim(file, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" ||
		!strings.Contains(file, ".") || strings.HasPrefix(file, "."):
		m.addProblem("unified", file, "is not a cgroup file", entryIgnored)
	case strings.HasPrefix(file, "cpuset.") || strings.HasPrefix(file, "cgroup."):
		m.addProblem("unified", file, "would take CPUs or memory from other containers, or move processes", entryIgnored)
	case slices.Contains(filesWithField, file):
		m.addProblem("unified", file, "another field of the answer sets it", entryIgnored)
	case strings.ContainsAny(text, "\x00") || len(text) > 4096:
		m.addProblem("unified", file, "has a value that no cgroup file accepts", entryIgnored)
	default:
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		out.Unified[file] = text
	}
}

// changedValues returns the fields that differ between two requests for a container, each with the value in newReq. It
// does not set the field Why of the values.
func changedValues(oldReq, newReq *hooks.ContainerResourceHookRequest) []lifecycle.Value {
	var out []lifecycle.Value
	a, n := oldReq.GetContainerResources(), newReq.GetContainerResources()
	number := func(f lifecycle.Field, was, is int64) {
		if is != was {
			out = append(out, lifecycle.Value{Field: f, Int: is})
		}
	}
	text := func(f lifecycle.Field, was, is string) {
		if is != was {
			out = append(out, lifecycle.Value{Field: f, Text: is})
		}
	}
	number(lifecycle.CPUPeriod, a.GetCpuPeriod(), n.GetCpuPeriod())
	number(lifecycle.CPUQuota, a.GetCpuQuota(), n.GetCpuQuota())
	number(lifecycle.CPUShares, a.GetCpuShares(), n.GetCpuShares())
	number(lifecycle.MemoryLimit, a.GetMemoryLimitInBytes(), n.GetMemoryLimitInBytes())
	number(lifecycle.OOMScoreAdj, a.GetOomScoreAdj(), n.GetOomScoreAdj())
	text(lifecycle.CPUSetCPUs, a.GetCpusetCpus(), n.GetCpusetCpus())
	text(lifecycle.CPUSetMems, a.GetCpusetMems(), n.GetCpusetMems())
	keyed := func(f lifecycle.Field, was, is map[string]string) {
		more := changedEntries(was, is)
		for _, k := range slices.Sorted(maps.Keys(more)) {
			out = append(out, lifecycle.Value{Field: f, Key: k, Text: more[k]})
		}
	}
	keyed(lifecycle.Unified, a.GetUnified(), n.GetUnified())
	keyed(lifecycle.Annotation, oldReq.ContainerAnnotations, newReq.ContainerAnnotations)
	keyed(lifecycle.Env, oldReq.ContainerEnvs, newReq.ContainerEnvs)
	var gone []string
	for k := range oldReq.ContainerEnvs {
		if _, has := newReq.ContainerEnvs[k]; !has {
			gone = append(gone, k)
		}
	}
	slices.Sort(gone)
	for _, k := range gone {
		out = append(out, lifecycle.Value{Field: lifecycle.Env, Key: k, Remove: true})
	}
	return out
}
