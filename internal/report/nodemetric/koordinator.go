package nodemetric

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Status returns the status of a NodeMetric (slo.koordinator.sh/v1alpha1). updated is the time of the last reading,
// in the API server's format.
func (h *History) Status(p Policy, updated string) map[string]any {
	p = p.WithDefaults()
	all, _ := h.lastReadings(p.Average)
	pods := podsUsage(all)
	node := meanUsage(nodeCounters(all))
	system := node
	var each []any
	for _, pod := range slices.SortedFunc(maps.Keys(pods), comparePods) {
		u := pods[pod]
		system.Milli, system.Bytes = max(0, system.Milli-u.Milli), max(0, system.Bytes-u.Bytes)
		each = append(each, pod.metric(u))
	}
	metric := map[string]any{"nodeUsage": resourceMap(node), "systemUsage": resourceMap(system)}
	if list := h.aggregates(p.Durations); len(list) > 0 {
		metric["aggregatedNodeUsages"] = list
	}
	status := map[string]any{"updateTime": updated, "nodeMetric": metric}
	if len(each) > 0 {
		status["podsMetric"] = each
	}
	return map[string]any{"status": status}
}

// comparePods orders pods by namespace, name and UID.
func comparePods(a, b Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// metric returns the pod's entry in the list podsMetric of a NodeMetric.
func (p Pod) metric(usage Usage) map[string]any {
	out := map[string]any{"namespace": p.Namespace, "name": p.Name, "podUsage": resourceMap(usage)}
	for key, v := range map[string]string{"qos": p.QoS, "priority": p.Priority} {
		if v != "" {
			out[key] = v
		}
	}
	return out
}

// aggregates returns the mean and the percentiles of the node's usage for each duration. Like koordlet, it leaves out
// a duration if the readings do not cover more than half of the duration.
func (h *History) aggregates(durations []time.Duration) (out []any) {
	percent := []int{50, 90, 95, 99}
	for _, d := range durations {
		all, covered := h.lastReadings(d)
		if len(all) < 2 || covered <= d/2 {
			continue
		}
		usage := map[string]any{"avg": resourceMap(meanUsage(nodeCounters(all)))}
		for i, v := range percentiles(nodeCounters(all), percent) {
			usage["p"+strconv.Itoa(percent[i])] = resourceMap(v)
		}
		out = append(out, map[string]any{"duration": d.String(), "usage": usage})
	}
	return out
}

// resourceMap converts a usage to Koordinator's ResourceMap.
func resourceMap(u Usage) map[string]any {
	return map[string]any{"resources": map[string]any{"cpu": strconv.FormatInt(u.Milli, 10) + "m", "memory": strconv.FormatInt(u.Bytes, 10)}}
}

// PolicyOf reads the policy that Koordinator's manager has set in the spec of a NodeMetric. It uses the defaults for
// missing and invalid fields.
func PolicyOf(object map[string]any) Policy {
	spec, _ := object["spec"].(map[string]any)
	wanted, _ := spec["metricCollectPolicy"].(map[string]any)
	var p Policy
	p.Average, p.Interval = durationOf(wanted["aggregateDurationSeconds"]), durationOf(wanted["reportIntervalSeconds"])
	more, _ := wanted["nodeAggregatePolicy"].(map[string]any)
	list, _ := more["durations"].([]any)
	for _, v := range list {
		text, _ := v.(string)
		if d, err := time.ParseDuration(text); err == nil {
			p.Durations = append(p.Durations, d)
		}
	}
	return p.WithDefaults()
}

// durationOf converts a number of seconds. It returns 0 if v is not a number or out of range.
func durationOf(v any) time.Duration {
	n, _ := v.(int64)
	if n <= 0 || n > int64(retention/time.Second) {
		return 0
	}
	return time.Duration(n) * time.Second
}
