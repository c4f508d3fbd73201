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

// Rule is one row of the merge table. It describes how a field of the answer changes the request. The docs print the
// table, and a test checks that merge uses the same rules.
type Rule struct{ Field, Rule string }

// Rules returns the merge table. It is the same as in koordinator's runtime proxy 1.8, except for rows that mention a
// difference.
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
		{"oom_score_adj", "applied if within -1000 to 1000, also if 0, because a server copies the request"},
		{"cpuset_cpus, cpuset_mems", "applied if not empty; an empty list leaves the request unchanged (the existing proxy empties the cpuset)"},
		{"unified", "added to the request; files for which the answer has a field, and files of cpuset and cgroup, are refused and reported"},
		{"hugepage_limits", "not used: the request does not change"},
		{"container_envs", "if not empty, they replace all variables of the container, and other variables are removed; if empty, nothing changes"},
		{"container pod_cgroup_parent", "a parent other than the pod's is refused and reported (the existing proxy moves the container)"},
	}
}

// settingID identifies a setting: a field, and the key of an entry if the field is a map.
type settingID struct {
	field lifecycle.Field
	key   string
}

// answerProblem describes an invalid part of an answer.
func answerProblem(server, field, value, reason, then string) lifecycle.Problem {
	return lifecycle.Problem{
		Hook: lifecycle.HookServerName, Key: server + ": " + field, Value: shorten(value), Reason: reason, Then: then,
	}
}

// maxShown limits an untrusted text in a message, in bytes.
const maxShown = 300

// shorten shortens an untrusted text, and replaces its control characters.
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

// reservedKeyPrefix is the prefix of keys that no answer may set, because only the agent may write records.
const reservedKeyPrefix = "trimtab.io/record"

// mergeMap adds the entries of an answer to a copy of the map have. It leaves out entries that cannot be valid, and
// calls complain for each of them.
func mergeMap(have, answer map[string]string, complain func(key, why string)) map[string]string {
	more := changedEntries(have, answer) // most answers repeat the request
	if len(more) == 0 {
		return have
	}
	out := maps.Clone(have)
	for _, k := range slices.Sorted(maps.Keys(more)) {
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

// mergePod returns a pod with the changes of a server's answer. It does not modify the original, and shares its
// unchanged parts.
func mergePod(server string, asked *hooks.PodSandboxHookRequest, answer *hooks.PodSandboxHookResponse) (*hooks.PodSandboxHookRequest, []lifecycle.Problem) {
	out := &hooks.PodSandboxHookRequest{
		PodMeta: asked.PodMeta, RuntimeHandler: asked.RuntimeHandler, CgroupParent: asked.CgroupParent,
		Overhead: asked.Overhead, Resources: asked.Resources,
	}
	m := answerMerge{server: server}
	out.Labels = mergeMap(asked.Labels, answer.GetLabels(), m.entryProblemFunc("labels"))
	out.Annotations = mergeMap(asked.Annotations, answer.GetAnnotations(), m.entryProblemFunc("annotations"))
	if parent := answer.GetCgroupParent(); parent != "" && parent != asked.CgroupParent {
		m.addProblem("cgroup_parent", parent, "Trimtab does not move pods out of the kubelet's cgroups", "the pod stays in "+shorten(asked.CgroupParent))
	}
	return out, m.problems.List()
}

// mergeContainer returns a container with the changes of a server's answer. It does not modify the original, and
// shares its unchanged parts.
func mergeContainer(server string, asked *hooks.ContainerResourceHookRequest, answer *hooks.ContainerResourceHookResponse) (*hooks.ContainerResourceHookRequest, []lifecycle.Problem) {
	out := &hooks.ContainerResourceHookRequest{
		PodMeta: asked.PodMeta, ContainerMeta: asked.ContainerMeta, ContainerResources: asked.ContainerResources, PodResources: asked.PodResources,
		PodAnnotations: asked.PodAnnotations, PodLabels: asked.PodLabels, PodCgroupParent: asked.PodCgroupParent, ContainerEnvs: asked.ContainerEnvs,
	}
	m := answerMerge{server: server}
	out.ContainerAnnotations = mergeMap(asked.ContainerAnnotations, answer.GetContainerAnnotations(), m.entryProblemFunc("container_annotations"))
	if parent := answer.GetPodCgroupParent(); parent != "" && parent != asked.PodCgroupParent {
		m.addProblem("pod_cgroup_parent", parent, "Trimtab does not move containers out of their pod's cgroup", "the container stays in "+shorten(asked.PodCgroupParent))
	}
	if envs := answer.GetContainerEnvs(); len(envs) > 0 {
		m.mergeEnvs(out, envs)
	}
	if r := answer.GetContainerResources(); r != nil {
		out.ContainerResources = proto.CloneOf(asked.ContainerResources)
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

// addProblem adds a problem.
func (m *answerMerge) addProblem(field, value, reason, then string) {
	if m.problems.Full(lifecycle.Problem{}) {
		value = ""
	}
	m.problems.Add(answerProblem(m.server, field, value, reason, then))
}

// entryProblemFunc returns a function that adds a problem about an entry of a field.
func (m *answerMerge) entryProblemFunc(field string) func(key, why string) {
	return func(key, why string) { m.addProblem(field, key, why, entryIgnored) }
}

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
		delete(envs, name) // envs belongs to the answer, and nothing reads it again
	}
	if len(envs) > 0 {
		out.ContainerEnvs = envs
	}
}

// requestUnchanged describes the consequence of an invalid value.
const requestUnchanged = "the value of the request does not change"

// The kernel's limits of CPU periods and quotas in µs (sched/core.c, tg_set_cfs_bandwidth), and of CPU shares.
// maxOOMScoreAdj is the greatest oom_score_adj; the least is -maxOOMScoreAdj.
const (
	minPeriod, maxPeriod = 1000, 1000000
	minQuota             = 1000
	minShares, maxShares = 2, 262144
	maxOOMScoreAdj       = 1000
)

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

// mergeNumber applies a number above 0 that is within the limits least and most. It accepts a value that equals the
// request without a check.
func (m *answerMerge) mergeNumber(field string, out *int64, v, least, most int64) {
	switch {
	case v <= 0 || v == *out:
	case v < least || v > most:
		m.addProblem(field, fmt.Sprint(v), fmt.Sprintf("is not within %d to %d", least, most), requestUnchanged)
	default:
		*out = v
	}
}

// mergeList applies a list of CPUs or memory nodes that is not empty.
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

// filesWithField are the files of cgroup v2 that an answer sets by another field.
var filesWithField = []string{"cpu.max", "cpu.weight", "memory.max"}

// mergeUnified applies the text of a cgroup v2 file.
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

// changedValues returns the differences between two requests for a container, as values without reasons.
func changedValues(asked, now *hooks.ContainerResourceHookRequest) []lifecycle.Value {
	var out []lifecycle.Value
	a, n := asked.GetContainerResources(), now.GetContainerResources()
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
	keyed(lifecycle.Annotation, asked.ContainerAnnotations, now.ContainerAnnotations)
	keyed(lifecycle.Env, asked.ContainerEnvs, now.ContainerEnvs)
	var gone []string
	for k := range asked.ContainerEnvs {
		if _, has := now.ContainerEnvs[k]; !has {
			gone = append(gone, k)
		}
	}
	slices.Sort(gone)
	for _, k := range gone {
		out = append(out, lifecycle.Value{Field: lifecycle.Env, Key: k, Remove: true})
	}
	return out
}
