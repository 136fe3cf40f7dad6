-- The days of the stays that had either treatment and at least one measurement, numbered from 1, and what was done.
SELECT
    icustay_id, subject_id, day,
    row_number() OVER (PARTITION BY icustay_id ORDER BY day) AS number,
    (icustay_id, day) IN (SELECT (icustay_id, day) FROM ventilated_days) AS ventilated,
    (icustay_id, day) IN (SELECT (icustay_id, day) FROM antibiotic_days) AS antibiotics
FROM (
    SELECT icustay_id, subject_id, unnest(generate_series(first_day, last_day, INTERVAL 1 DAY))::DATE AS day
    FROM stays
    WHERE icustay_id IN (SELECT icustay_id FROM treated) AND icustay_id IN (SELECT icustay_id FROM daily)
)
