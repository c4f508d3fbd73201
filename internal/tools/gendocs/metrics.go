package main

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/report/metrics"
)

func metricsPage() (string, error) {
	var b strings.Builder
	b.WriteString(generated + `# Metrics and probes

` + "```sh by=internal/agent.TestProbes\ntrimtab agent --http-address 127.0.0.1:9464    # or http.address in the configuration\ncurl -s http://127.0.0.1:9464/metrics\n```" + `

For operators who watch nodes: every metric and probe. The agent serves

` + item("`/metrics`: the metrics below, and the usual `go_` and `process_` ones") +
		item("`/healthz`: 200 while the process handles events; otherwise 503 and the reason, and it should be restarted. A runtime, kubelet or "+
			"API server that does not answer is no such reason") +
		item("`/readyz`: 200 while a runtime is attached and the agent has read what it runs; otherwise 503 and the reason") + `
It is off by default, because everybody who reaches the port can read it. The status socket, which only root may use, is
separate.

Every metric is in base units and counts from the agent's start. Labels have the few values named here. No pod, container or
namespace is ever a label; ` + "`trimtab status` and `trimtab explain`" + ` report those.

`)
	for _, r := range metrics.Rows() {
		b.WriteString(item(clauses(" ", fmt.Sprintf("%s (%s): %s", code(r.Name), r.Kind, r.Help), sentence(labelled("Labels:", r.Labels)))))
	}
	b.WriteString(`
[monitoring.md](monitoring.md) has the alert rules, what to do about each, and a Grafana dashboard.
`)
	return b.String(), nil
}
