package main

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/kube/events"
)

func eventsPage() (string, error) {
	var b strings.Builder
	b.WriteString(generated + `# Events and the node condition

` + "```sh by=test/vm/cluster/rights.TestReports\nkubectl describe pod POD                                             # its requests that are not in force\n" +
		"kubectl get events -A --field-selector reportingComponent=trimtab    # of all pods\n" +
		"kubectl get node NODE -o jsonpath='{.status.conditions[?(@.type==\"TrimtabReady\")]}'\n```" + `

For users of pods and for operators: which Kubernetes events Trimtab writes, what each means, and what to do. They need
` + code("cluster.enabled") + `, and ` + code("cluster.events") + `, which is on by default. ` + code("trimtab explain") +
		` on the node says the same with all details, and ` + code("trimtab events") + ` has the node's whole journal.

## Reasons

All events are of type Warning. The field ` + code("reason") + ` is one of these; a reason keeps its meaning.

`)
	for _, r := range events.Rows() {
		b.WriteString(item(fmt.Sprintf("%s (on %s): %s %s", code(string(r.Reason)), r.About, r.Means, r.Do)))
	}
	b.WriteString(`
## How many there are

A pod has one event for each reason and node. When there is something new, its message and time are renewed and its count
grows. A message has the first three texts; ` + code("trimtab explain") + ` has all. A pod gets at most ten events at once, and one
more every five minutes. A node writes at most twenty at once, and one more every two seconds. The first one after a
rest waits up to five seconds, so that a thousand nodes do not write at once.

An invalid ConfigMap has one event for all nodes: the first that refuses a version of it writes the event, with a name
made of version and message, and the others find it there. It has no count of nodes. To count, a node would have to
change an event that names another node as its reporter, and then a token that was stolen from one node could rewrite
the events of all. ` + code("kubectl trimtab nodes") + ` and the node condition say which nodes refuse it.

No pod waits for an event. While the API server is away the newest 256 wait, and are written when it is back. What was
left out is counted in ` + code("trimtab_cluster_events_total") + ` ([metrics.md](metrics.md)). ` + code("reportingInstance") + ` and
` + code("source.host") + ` are the node. The API server keeps events for an hour, by default.

## The node condition

` + code("TrimtabReady") + ` of the Node object says whether the agent works (` + code("cluster.nodeCondition") + `). No scheduler and no kubelet acts on it.

` + item("`True`, `Ready`: a runtime is attached, and the agent has taken over its containers") +
		item("`True`, `ConfigurationRefused`: the same, and a newer configuration is invalid; the message says why") +
		item("`False`, `NotReady`: the message gives the reason, as `/readyz` does") +
		item("`Unknown`, `AgentStopped`: the agent was stopped; containers keep their values") + `
It is written on a change, after a random wait of at most 4 seconds (30 seconds at a start), and every ten minutes. An agent
that was killed leaves its last condition: ` + code("lastHeartbeatTime") + ` is then older than 11 minutes. ` + code("trimtab release") + `
removes condition and annotations.

## The placement of a pod

` + "```console by=test/vm/cluster.TestPods\n$ kubectl get pod POD -o jsonpath='{.metadata.annotations.trimtab\\.io/placement}'\n" +
		`{"class":"dedicated","containers":{"app":{"cpus":"2-3","mems":"0","exclusive":true}}}` + "\n```" + `

With ` + code("cluster.podAnnotation") + ` (off by default) each pod has this annotation: its class, and the CPUs and memory nodes of its
live containers, as kernel lists. Without ` + code("mems") + ` the container may use all memory nodes. Changes are collected for ten
seconds. Static pods have none, since the kubelet owns their objects. The chart lets agents change pods only where the
key is on.
`)
	return b.String(), nil
}
