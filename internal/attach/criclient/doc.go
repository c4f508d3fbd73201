// Package criclient is how every attachment reads a CRI runtime: its client, what
// verbose statuses say, lists, and the translation of the CRI's messages into
// lifecycle words. It decides nothing, and keeps nothing of pods and containers.
package criclient
