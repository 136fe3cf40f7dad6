// The clinical tables are plain; the page can only change its colours.
kit.theme();
