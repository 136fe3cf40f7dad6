-- Every measurement of a covariate within a stay, and what became of it. `value` is the number in the covariate's unit
-- where that is within the limits of covariates.csv; else the number taken to be in the unit that is mistaken for the
-- item's own (items.csv: Fahrenheit under a Celsius item, say), where that is within them; else nothing.
WITH events AS (
    SELECT subject_id, itemid, charttime, number, filled, wrong FROM chartevents
    UNION ALL
    SELECT subject_id, itemid, charttime, number, filled, wrong FROM labevents
),
converted AS (
    SELECT
        icustay_id, charttime, itemid, covariate, low, high, filled, wrong,
        CASE WHEN isfinite(number) THEN number * scale + shift END AS own,
        CASE WHEN isfinite(number) THEN number * mistaken_scale + mistaken_shift END AS other
    FROM events
    JOIN items USING (itemid)
    JOIN covariates USING (covariate)
    JOIN stays USING (subject_id)
    WHERE charttime >= intime AND charttime < outtime
),
judged AS (
    SELECT
        icustay_id, charttime, itemid, covariate,
        CASE
            WHEN wrong THEN 'marked wrong'
            WHEN NOT filled THEN 'empty'
            WHEN own IS NULL THEN 'not a number'
            WHEN own BETWEEN low AND high THEN 'plausible'
            WHEN other BETWEEN low AND high THEN 'unit mended'
            ELSE 'implausible'
        END AS verdict,
        own, other
    FROM converted
)
SELECT
    icustay_id, charttime, itemid, covariate, verdict,
    CASE verdict WHEN 'plausible' THEN own WHEN 'unit mended' THEN other END AS value
FROM judged
