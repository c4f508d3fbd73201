package main

import (
	"fmt"
	"strings"

	"github.com/trimtab/trimtab/internal/report/metrics"
)

func metricsPage() (string, error) {
	var b strings.Builder
	b.WriteString(generated + `# Metrics and probes

With ` + "`http.address`" + ` set (or ` + "`trimtab agent --http-address`" + `), the agent serves

| path | answers |
|---|---|
| ` + "`/metrics`" + ` | the metrics below, and the usual ` + "`go_` and `process_`" + ` ones |
| ` + "`/healthz`" + ` | 200 while the process takes events; 503 and why where it should be started anew. A runtime, kubelet or API server that is away is no reason. |
| ` + "`/readyz`" + ` | 200 while a runtime is attached and what it runs was taken over; 503 and why not otherwise |

It is off by default: the page is for whoever reaches the port. The status socket, which only root may use, is apart from it.

Every metric is in base units and counts from the agent's start. Labels are of the small sets named here: no pod, no
container and no namespace is ever one; ` + "`trimtab status`" + ` and ` + "`trimtab explain`" + ` tell of those.

| metric | type | meaning | labels |
|---|---|---|---|
`)
	for _, r := range metrics.Rows() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Name, r.Kind, cell(r.Help), cell(r.Labels))
	}
	b.WriteString(`
## Worth an alert

| expression | says |
|---|---|
| ` + "`max(trimtab_attached) by (instance) == 0`" + ` for 5 minutes | pods start without what they were promised |
| ` + "`sum(trimtab_unapplied_values{reason!=\"not yet\"}) by (instance) > 0`" + ` for 10 minutes | something decided is not in force; ` + "`trimtab status`" + ` names it |
| ` + "`trimtab_config_error == 1`" + ` | the newest configuration was refused |
| ` + "`increase(trimtab_drift_corrected_total[15m]) > 10`" + ` | somebody else writes what Trimtab writes; ` + "`trimtab doctor`" + ` may know who |
`)
	return b.String(), nil
}
