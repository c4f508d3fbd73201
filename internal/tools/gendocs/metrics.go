package main

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/report/metrics"
)

// metricsPage returns docs/metrics.md.
func metricsPage() (string, error) {
	var b strings.Builder
	b.WriteString(generatedNotice + `# Metrics and probes

` + "```sh by=internal/agent.TestProbes\ntrimtab agent --http-address 127.0.0.1:9464    # or http.address in the configuration\ncurl -s http://127.0.0.1:9464/metrics\n```" + `

For operators who monitor nodes. This page lists every metric and probe of the agent. The agent serves these paths:

` + listItem("`/metrics`: the metrics below, and the usual metrics `go_…` and `process_…` of Go programs") +
		listItem("`/healthz`: 200 while the process handles events; otherwise 503 and the reason. With 503 the process should be restarted. "+
			"The path also returns 200 while a runtime, kubelet or API server does not answer") +
		listItem("`/readyz`: 200 while the agent is connected to a runtime, the decisions about its containers are applied, and each running "+
			"container has a cgroup; otherwise 503 and the reason") + `
By default the agent does not serve these paths, because everybody who can reach the port can read them. The commands on the node
do not need the paths: the commands use the status socket, which only root can open. ` + "`trimtab sysdump`" + ` also saves the metrics if
the agent serves them.

Every metric has base units (seconds, bytes), and counters begin at 0 when the agent starts. Each entry below has the type of the metric,
its meaning, and its labels with their values. No label has the name of a pod, container or namespace. For single pods, use
` + "`trimtab status` and `trimtab explain`" + `.

`)
	for _, r := range metrics.Families() {
		b.WriteString(listItem(joinNonEmpty(" ", fmt.Sprintf("%s (%s): %s", codeSpan(r.Name), r.Kind, r.Help), addFullStop(withLabel("Labels:", r.LabelValues)))))
	}
	b.WriteString(`
[monitoring.md](monitoring.md) has the alert rules, what to do about each, and a Grafana dashboard.
`)
	return b.String(), nil
}
