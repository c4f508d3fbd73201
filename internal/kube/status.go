package kube

import "github.com/trimtab/trimtab/internal/report/api"

// StatusReporter is a service with a row in `trimtab status` and on the metrics page.
type StatusReporter interface {
	Service
	// Row returns the row. A row without a name is not shown. Row must not block.
	Row() api.ClusterPart
}

// Status returns the rows of the services that are a StatusReporter.
func (c *Client) Status(services ...Service) api.Cluster {
	reached, failed := c.State()
	out := api.Cluster{Server: c.Server, Node: c.Node, Reached: reached}
	if failed != nil {
		out.Error = failed.Error()
	}
	for _, s := range services {
		p, ok := s.(StatusReporter)
		if !ok {
			continue
		}
		if row := p.Row(); row.Name != "" {
			out.Parts = append(out.Parts, row)
		}
	}
	return out
}
