// Package rights tests what agents may change through a real API server, with the roles and policies of the chart.
package rights
