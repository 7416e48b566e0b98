// Package arrows holds no code: its test reads the imports of the whole module and fails on one that points the wrong way, so that the layers of
// ARCHITECTURE.md stay true. Formats are at the bottom, commands on top. Other tests hold the documents to the code: links, tests, targets and dependencies that they name.
package arrows
