package metrics

// Family describes one metric. The metrics page, its documentation and the tests use this description.
type Family struct {
	Name       string
	Kind       string   // counter, gauge or histogram
	LabelNames []string // the names of the labels
	Help       string
	// LabelValues describes the possible values of each label, for users.
	LabelValues string
}

// The kinds of metrics, as Prometheus names them.
const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

// Families returns the table of all metrics.
func Families() []Family {
	all := New(Build{}, KnownLabelValues{}).families
	for _, f := range stateMetrics {
		all = append(all, f.Family)
	}
	return all
}
