package main

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/kube/events"
)

// eventsPage returns docs/events.md.
func eventsPage() (string, error) {
	var b strings.Builder
	b.WriteString(generatedNotice + `# Events and the node condition

` + "```sh by=test/vm/cluster/rights.TestReports\nkubectl describe pod POD                                             # its requests that are not in force\n" +
		"kubectl get events -A --field-selector reportingComponent=trimtab    # of all pods\n" +
		"kubectl get node NODE -o jsonpath='{.status.conditions[?(@.type==\"TrimtabReady\")]}'\n```" + `

For authors of pods and for operators. This page says which Kubernetes events Trimtab writes, what each event means, and what
to do. It also describes the node condition and the placement annotation. The agent writes events only if both
` + codeSpan("cluster.enabled") + ` and ` + codeSpan("cluster.events") + ` (on by default) are true. On the node, ` + codeSpan("trimtab explain") + ` shows the same problems
with all details, and ` + codeSpan("trimtab events") + ` shows the journal of the node.

## Reasons

All events have the type Warning. The field ` + codeSpan("reason") + ` has one of the words below. Later versions do not change
the meaning of a word. Each entry has the object of the event, the meaning, and what to do.

`)
	for _, r := range events.ReasonRows() {
		b.WriteString(listItem(fmt.Sprintf("%s (on %s): %s %s", codeSpan(string(r.Reason)), r.About, r.Means, r.Do)))
	}
	b.WriteString(eventLimits + conditionSection + placementSection)
	return b.String(), nil
}

// eventLimits is the section of the page about the number of events.
var eventLimits = `
## How many events there are

A pod has one event for each reason and node. If there is a new problem with the same reason, the agent changes the message
and the time of this event and increases its count. A message has at most three problems; ` + codeSpan("trimtab explain") + ` shows all.

* A pod gets at most ten events at once, and then one more every five minutes.
* A node writes at most twenty events at once, and then one more every two seconds.
* After a time without events, the first event waits up to five seconds, so that a thousand nodes do not write at once.

An invalid ConfigMap has one event for all nodes. The first node that refuses a version of the ConfigMap writes the event.
The name of the event is made from the version and the message, so the other nodes find this event and write no event. The event
does not say how many nodes refuse the ConfigMap: to count them, each node would need the right to change events of other nodes.
An attacker with the token of one node could then rewrite the events of all nodes. ` + codeSpan("kubectl trimtab nodes") + ` and the node
condition say which nodes refuse the ConfigMap.

No pod waits for an event. While the API server is unreachable, the agent keeps the newest 256 events, and writes them when the
API server answers again. The metric ` + codeSpan("trimtab_cluster_events_total") + ` counts the events that were left out ([metrics.md](metrics.md)).
` + codeSpan("reportingInstance") + ` and ` + codeSpan("source.host") + ` of an event name the node. By default, the API server deletes events after an
hour.

`

// conditionSection is the section of the page about the condition of the Node object.
var conditionSection = `## The node condition

The condition ` + codeSpan("TrimtabReady") + ` of the Node object says whether the agent works (` + codeSpan("cluster.nodeCondition") + `). The scheduler
and the kubelet ignore this condition. It has these values and reasons:

` + listItem("`True`, `Ready`: the agent is ready, as `/readyz` reports it ([metrics.md](metrics.md))") +
	listItem("`True`, `ConfigurationRefused`: the agent works with the last valid configuration; the message says why it refused a newer one") +
	listItem("`False`, `NotReady`: the agent is not ready; the message has the reason, like `/readyz`") +
	listItem("`Unknown`, `AgentStopped`: the agent was stopped; containers keep their values") + `
The agent writes the condition every ten to eleven minutes, and after a change. After a change, the agent first waits for a random time
of at most 4 seconds. After its start, it waits for at most 30 seconds. If an agent was killed, its last condition stays, and its ` + codeSpan("lastHeartbeatTime") + ` becomes
older than 11 minutes. ` + codeSpan("trimtab release") + ` removes the condition and the annotations.

`

// placementSection is the section of the page about the placement annotation of pods.
var placementSection = `## The placement of a pod

` + "```console by=test/vm/cluster.TestPods\n$ kubectl get pod POD -o jsonpath='{.metadata.annotations.trimtab\\.io/placement}'\n" +
	`{"class":"dedicated","containers":{"app":{"cpus":"2-3","mems":"0","exclusive":true}}}` + "\n```" + `

With ` + codeSpan("cluster.podAnnotation") + ` (off by default) the agent writes this annotation into each pod. It has the class of the pod,
and the CPUs and memory nodes of its live containers, as lists in the kernel's format. If ` + codeSpan("mems") + ` is missing, the container may use all
memory nodes. The agent collects changes for ten seconds. Static pods have no annotation, because the kubelet owns their
objects. The chart gives agents the right to change pods only if this key is on.
`
